"""The outputs of a layer with parameters, for R runs at once and in a given precision.

Layers with a closed form take factors of the precision; any other is computed as it stands, in the
parameters' own type.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.precision import Precision
from oso_dp.gradients.registry import has_rule


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
        self._rounded: dict[str, Tensor] = {}

    def __call__(self, inputs: Tensor) -> Tensor:
        """inputs [R B, ...] -> outputs [R B, ...], each run's part with that run's parameters."""
        inputs = self.prepared(inputs)
        own = self._factors() if self.has_rule(inputs) else self.parameters
        if type(self.layer) is nn.Linear and inputs.dim() == 2:
            return _linear(inputs, own["weight"], own.get("bias"))
        if self.runs > 1 and self.inside:
            raise OsoError(
                f"model: {type(self.layer).__name__} has parameters beside layers with parameters; "
                "such a model can train one run at a time only"
            )
        parts = [
            torch.func.functional_call(
                self.layer, {key: values[run] for key, values in own.items()}, (part,)
            )
            for run, part in enumerate(inputs.chunk(self.runs))
        ]
        return parts[0] if self.runs == 1 else torch.cat(parts)

    def has_rule(self, inputs: Tensor) -> bool:
        return has_rule(self.layer, inputs)

    def prepared(self, inputs: Tensor) -> Tensor:
        """The inputs in the type and layout in which the layer takes them."""
        if not self.has_rule(inputs):
            # Whole numbers, as places in a vocabulary, stay what they are.
            low = self.precision.low and inputs.is_floating_point()
            return inputs.to(self.dtype) if low else inputs
        inputs = self.precision.rounded(inputs)
        return _channels_last(inputs) if self.channels_last else inputs

    def _factors(self) -> Mapping[str, Tensor]:
        """The parameters as factors, rounded once for all passes."""
        if not self._rounded:
            self._rounded = {
                key: self.precision.rounded(values) for key, values in self.parameters.items()
            }
        return self._rounded


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each run's layer on its own part: inputs [R B, I], weight [R, O, I], bias [R, O]."""
    if len(weight) == 1:
        return F.linear(inputs, weight[0], None if bias is None else bias[0])
    parts = inputs.unflatten(0, (len(weight), -1))
    if bias is None:
        return torch.bmm(parts, weight.transpose(1, 2)).flatten(0, 1)
    return torch.baddbmm(bias[:, None], parts, weight.transpose(1, 2)).flatten(0, 1)


def _channels_last(images: Tensor) -> Tensor:
    """The same numbers, channels last. For a single channel it is the strides that tell torch."""
    if images.shape[1] == 1:
        return images.contiguous().squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last)
