"""The forward pass of a layer for R runs with different parameters, in a given precision.

Products take factors of the precision; any other layer computes in the dtype of the parameters.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.layer_calls import LayerCall, find_call_convention
from oso_dp.gradients.precision import Precision
from oso_dp.gradients.registry import is_product


class LayerOutputs:
    """One layer with the parameters of R runs, each [R, ...], ready for as many passes as wanted.

    `inside`: the parameters of layers inside this one.

    On a CPU, or with factors of two bytes, convolutions keep their channels last: what stands
    together then is read together, by the products that form per-example kernels, too.
    """

    def __init__(
        self,
        layer: nn.Module,
        parameters: Mapping[str, Tensor],
        inside: Mapping[str, Tensor],
        precision: Precision,
    ) -> None:
        self.layer, self.parameters, self.inside = layer, parameters, inside
        self.precision = precision
        first = next(iter(parameters.values()))
        self.runs, self.dtype = len(first), first.dtype
        self.convolution = type(layer) in (nn.Conv2d, nn.ConvTranspose2d)
        self.channels_last = self.convolution and (not first.is_cuda or precision.low)
        self.form = find_call_convention(layer)
        self._rounded: dict[str, Tensor] = {}

    def __call__(self, taken: LayerCall) -> tuple[Tensor, ...]:
        """What `taken` gave -> outputs [R B, ...], each run's part with that run's parameters."""
        factors = self._factors() if self._is_product(taken) else self.parameters
        if type(self.layer) is nn.Linear:
            return (_linear(taken.tensors[0], factors["weight"], factors.get("bias")),)
        if self.runs > 1 and self.inside:
            raise OsoError(
                f"model: {type(self.layer).__name__} has parameters and layers with parameters; "
                "train one run at a time only"
            )
        by_run: list[tuple[Tensor, ...]] = [taken.tensors]
        if self.runs > 1:  # else a part's gradient would be copied into the whole's
            chunks = (part.chunk(self.runs) for part in taken.tensors)
            by_run = list(zip(*chunks, strict=True))
        parts = [
            self.form.call(
                self.layer,
                {key: values[run] for key, values in factors.items()},
                taken.with_tensors(part),
            )
            for run, part in enumerate(by_run)
        ]
        return parts[0] if self.runs == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))

    def call_patched(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What the layer itself would return for these arguments."""
        return self.form.as_returned(self(self.bind(given, named)))

    def bind(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> LayerCall:
        """The call's tensors in the type and layout in which the layer takes them."""
        taken = self.form.bind(self.layer, given, named)
        if not self._is_product(taken):
            # Whole numbers, as places in a vocabulary, stay what they are.
            return taken.with_tensors(
                tuple(
                    part.to(self.dtype) if self.precision.low and part.is_floating_point() else part
                    for part in taken.tensors
                )
            )
        inputs = self.precision.rounded(taken.tensors[0])
        return taken.with_tensors((_channels_last(inputs) if self.channels_last else inputs,))

    def _is_product(self, taken: LayerCall) -> bool:
        return is_product(self.layer, taken.tensors[0])

    def _factors(self) -> Mapping[str, Tensor]:
        """The parameters as factors, rounded once for all passes."""
        if not self._rounded:
            self._rounded = {
                key: self.precision.rounded(values) for key, values in self.parameters.items()
            }
        return self._rounded


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each run's layer on its own part: inputs [R B, ..., I], weight [R, O, I], bias [R, O]."""
    if len(weight) == 1:
        return F.linear(inputs, weight[0], None if bias is None else bias[0])
    parts = inputs.flatten(0, -2).unflatten(0, (len(weight), -1))
    if bias is None:
        outputs = torch.bmm(parts, weight.transpose(1, 2))
    else:
        outputs = torch.baddbmm(bias[:, None], parts, weight.transpose(1, 2))
    return outputs.view(*inputs.shape[:-1], weight.shape[1])


def _channels_last(images: Tensor) -> Tensor:
    """The same numbers, channels last. For a single channel it is the strides that tell torch."""
    if images.shape[1] == 1:
        return images.contiguous().squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last)
