"""One forward and one backward pass of a model for R runs, and the rule of each layer.

While the model runs, its layers with parameters are called through a `BatchedLayer`, with each
run's parameters. As soon as the backward pass has the gradient of a layer's output, the layer's
rule takes it, so that neither that nor the layer's input is kept longer than in ordinary training.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.conv import ConvGradients
from oso_dp.gradients.layer_calls import LayerCall, bind_call
from oso_dp.gradients.layer_gradients import LayerGradients, Loss
from oso_dp.gradients.linear import (
    LinearGradients,
    SequenceFactors,
    SequenceKernels,
    kernels_are_small,
)
from oso_dp.gradients.other_layers import (
    EmbeddingGradients,
    FunctionalGradients,
    GroupNormGradients,
    LayerNormGradients,
)
from oso_dp.gradients.precision import Precision

CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d, nn.Conv2d, nn.ConvTranspose2d)


def find_rule(layer: nn.Module, inputs: Tensor) -> type:
    """The rule for this layer and input; the general one unless a closed form applies."""
    # Exact types: a subclass may compute something else.
    kind = type(layer)
    if isinstance(layer, nn.Linear) and kind is nn.Linear and inputs.dim() >= 2:
        if inputs.dim() == 2:
            return LinearGradients
        return SequenceKernels if kernels_are_small(layer, inputs) else SequenceFactors
    if isinstance(layer, CONVOLUTIONS) and kind in CONVOLUTIONS:
        padded = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return ConvGradients if layer.groups == 1 and padded else FunctionalGradients
    if kind is nn.Embedding:
        return EmbeddingGradients
    if isinstance(layer, nn.LayerNorm) and kind is nn.LayerNorm:
        # Fewer dimensions: what is normalised would be the batch.
        enough = inputs.dim() > len(layer.normalized_shape)
        return LayerNormGradients if enough else FunctionalGradients
    return GroupNormGradients if kind is nn.GroupNorm else FunctionalGradients


def is_product(layer: nn.Module, inputs: Tensor) -> bool:
    """Whether it is a product of inputs and parameters, whose factors a low precision rounds."""
    products = (LinearGradients, SequenceKernels, SequenceFactors, ConvGradients)
    return find_rule(layer, inputs) in products


class BatchedLayer:
    """One layer with the parameters of R runs, each [R, ...], ready for as many passes as wanted.

    `inside`: the parameters of layers inside this one. Products take factors of the precision; any
    other layer computes in the dtype of the parameters.

    On a CPU, or with factors of two bytes, convolutions keep their channels last: what stands
    together then is read together, by the products that form per-sample kernels, too.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        inside: Mapping[str, Tensor],
        precision: Precision,
    ) -> None:
        self.module = module
        self.layer = copy.copy(module)  # while the model runs, the module itself calls this object
        self.parameters, self.inside, self.precision = parameters, inside, precision
        first = next(iter(parameters.values()))
        self.runs, self.dtype = len(first), first.dtype
        is_2d = type(module) in (nn.Conv2d, nn.ConvTranspose2d)
        self.channels_last = is_2d and (not first.is_cuda or precision.low)
        self._rounded: dict[str, Tensor] = {}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LayerCall:
        """The call, with its tensors in the type and layout in which the layer takes them."""
        call = bind_call(self.layer, args, kwargs)
        if is_product(self.layer, call.tensors[0]):
            inputs = self.precision.rounded(call.tensors[0])
            return call._replace(
                tensors=(_channels_last(inputs) if self.channels_last else inputs,)
            )
        if not self.precision.low:
            return call
        # Whole numbers, as places in a vocabulary, stay what they are.
        tensors = (one.to(self.dtype) if one.is_floating_point() else one for one in call.tensors)
        return call._replace(tensors=tuple(tensors))

    def outputs(self, call: LayerCall) -> tuple[Tensor, ...]:
        """The outputs [R B, ...], each run's part with that run's parameters."""
        factors = self.parameters
        if is_product(self.layer, call.tensors[0]):
            if not self._rounded:  # once for all passes
                self._rounded = {
                    name: self.precision.rounded(values) for name, values in factors.items()
                }
            factors = self._rounded
        if type(self.layer) is nn.Linear:
            return (_linear(call.tensors[0], factors["weight"], factors.get("bias")),)
        if self.runs > 1 and self.inside:
            raise OsoError(
                f"model: {type(self.layer).__name__} has parameters and layers with parameters; "
                "train one run at a time only"
            )
        by_run: list[tuple[Tensor, ...]] = [call.tensors]
        if self.runs > 1:  # else a part's gradient would be copied into the whole's
            chunks = (part.chunk(self.runs) for part in call.tensors)
            by_run = list(zip(*chunks, strict=True))
        parts = [
            call.run(self.layer, {name: values[run] for name, values in factors.items()}, tensors)
            for run, tensors in enumerate(by_run)
        ]
        return parts[0] if self.runs == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))

    def gradients(self, call: LayerCall, output_gradients: Sequence[Tensor]) -> LayerGradients:
        """The layer's rule for this call."""
        rule = find_rule(self.layer, call.tensors[0])
        if rule is FunctionalGradients:
            return FunctionalGradients(
                self.layer, call, output_gradients, self.parameters, self.inside
            )
        gradients: LayerGradients = rule(self.layer, call.tensors[0], *output_gradients)
        return gradients


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


@contextmanager
def patched_forward(layers: Mapping[str, BatchedLayer], call: Callable[..., Any]) -> Iterator[None]:
    """While a model runs, these layers of it are called through `call`, by name."""
    try:
        for name, layer in layers.items():
            layer.module.forward = partial(call, name)
        yield
    finally:
        for layer in layers.values():
            layer.module.__dict__.pop("forward", None)


def compute_layer_gradients(
    model: nn.Module,
    loss: Loss,
    layers: Mapping[str, BatchedLayer],
    inputs: Tensor,
    targets: Tensor,
) -> dict[str, LayerGradients]:
    """The per-sample gradients of each layer, for inputs [N, ...] and targets [N, ...] of R runs.

    layers: those of the model that have parameters, by name.
    """
    leaves: list[Tensor] = []  # the outputs where the graph begins
    returned: list[tuple[BatchedLayer, Tensor, int]] = []  # outputs and their versions
    calls: dict[str, LayerCall] = {}
    gradients: dict[str, LayerGradients] = {}

    def forward(name: str, *args: Any, **kwargs: Any) -> Any:
        layer = layers[name]
        if name in calls:
            raise OsoError(f"model: a {type(layer.layer).__name__} is used twice in one pass")
        call = layer.bind(args, kwargs)
        # The very numbers that the product takes.
        calls[name] = call._replace(tensors=tuple(part.detach() for part in call.tensors))
        outputs = layer.outputs(call)
        if not outputs[0].requires_grad:  # the first layer's: here the graph begins
            leaves.extend(output.requires_grad_(True) for output in outputs)
        if len(outputs) == 1:
            outputs[0].register_hook(lambda gradient: backward(name, gradient))
        else:
            outputs = _MultiOutputHook.apply(partial(backward, name), *outputs)
        returned.extend((layer, output, output._version) for output in outputs)
        return call.returned(outputs)

    def backward(name: str, *output_gradients: Tensor) -> None:
        gradients[name] = layers[name].gradients(calls.pop(name), output_gradients)

    def check_used(used: Mapping[str, object]) -> None:
        if missing := layers.keys() - used.keys():
            raise OsoError(f"model: layers {sorted(missing)} are not used in the forward pass")

    with patched_forward(layers, forward):
        outputs = model(inputs)
    # A loss is no product: it is computed in the parameters' type.
    losses = loss(outputs.to(next(iter(layers.values())).dtype), targets)
    if losses.shape != (len(inputs),):  # a mean would be clipped as if it were one example's
        raise OsoError(
            f"loss: shape {list(losses.shape)} for {len(inputs)} examples; must be one loss per "
            "example"
        )
    for layer, output, version in returned:
        if output._version != version:
            raise OsoError(
                f"model: the output of a {type(layer.layer).__name__} is changed in place; use "
                "inplace=False"
            )
    returned.clear()  # the backward pass frees an output once it is done with it
    check_used(calls)
    # A layer may return what the model does not use.
    torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
    check_used(gradients)
    return {name: gradients[name] for name in layers}


class _MultiOutputHook(torch.autograd.Function):
    """A layer's outputs as they are; their gradients are handed to `take` all at once.

    An output that is not used has a gradient of zeros.
    """

    @staticmethod
    def forward(ctx: Any, take: Callable[..., None], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.take = take
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.take(*gradients)
        return (None, *gradients)
