"""Layers that multiply by a function of their weight, such as weight standardisation.

A subclass of a convolution or a Linear layer whose forward pass is one product of its input. The
gradients at the weight of the product are formed as for the plain layer, and are then pulled back
through the function, for all examples at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from oso_dp.gradients.conv import ConvGradients
from oso_dp.gradients.layer_calls import call_layer
from oso_dp.gradients.layer_gradients import MaterializedGradients

_CONVOLUTIONS: dict[Any, type[nn.modules.conv._ConvNd]] = {
    F.conv1d: nn.Conv1d,
    F.conv2d: nn.Conv2d,
}
_OPTIONS = ("stride", "padding", "dilation", "groups")


class _Product(NamedTuple):
    """A call of torch's: which function, with what, and its result."""

    function: Any
    inputs: Tensor
    weight: Tensor
    bias: Tensor | None
    options: dict[str, Any]
    result: Tensor


class _Products(TorchFunctionMode):
    """Keeps the products that are computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Product] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is F.linear or func in _CONVOLUTIONS:
            names = ("input", "weight", "bias", *_OPTIONS)
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            inputs, weight, bias = (given.pop(name, None) for name in names[:3])
            self.found.append(_Product(func, inputs, weight, bias, given, result))
        return result


def transformed_gradients(
    layer: nn.Module,
    inputs: Tensor,
    output_gradients: Tensor,
    parameters: Mapping[str, Tensor],
    views: int = 1,
) -> MaterializedGradients | None:
    """Of parameters [R, ...] for inputs and output gradients [R B, ...]; None for other layers.

    Of K views, [R B K, ...], those of an example are added up before they are pulled back.
    """
    if not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
        return None
    runs = len(next(iter(parameters.values())))
    by_run = []
    parts = zip(inputs.chunk(runs), output_gradients.chunk(runs), strict=True)
    for run, (of_run, errors) in enumerate(parts):
        own = {name: values[run] for name, values in parameters.items()}
        one = _of_one_run(layer, of_run, errors, own, views)
        if one is None:
            return None
        by_run.append(one)
    return MaterializedGradients(
        {name: torch.cat([one[name] for one in by_run]) for name in parameters}
    )


def _of_one_run(
    layer: nn.Module, inputs: Tensor, errors: Tensor, parameters: Mapping[str, Tensor], views: int
) -> dict[str, Tensor] | None:
    first = inputs[:1]
    with torch.enable_grad(), _Products() as products:
        own = {name: value.detach().requires_grad_(True) for name, value in parameters.items()}
        output = call_layer(layer, own, first)
    if len(products.found) != 1:
        return None
    (product,) = products.found
    rule = _rule(product)
    if product.inputs is not first or product.result is not output or rule is None:
        return None
    gradients = {
        name: values if views == 1 else values.unflatten(0, (-1, views)).sum(dim=1)
        for name, values in rule(inputs, errors).items()
    }
    reached = [
        (factor, gradients[name])
        for name, factor in (("weight", product.weight), ("bias", product.bias))
        if factor is not None and factor.requires_grad
    ]
    found = torch.autograd.grad(
        [factor for factor, _ in reached],
        list(own.values()),
        [gradient for _, gradient in reached],
        is_grads_batched=True,
        materialize_grads=True,
    )
    return dict(zip(own, found, strict=True))


def _rule(product: _Product) -> Callable[[Tensor, Tensor], dict[str, Tensor]] | None:
    """Gradients [N, ...] at the product's weight and bias, from inputs and output gradients."""
    if product.function is F.linear:
        return _linear_gradients
    out, channels, *size = product.weight.shape
    options = product.options
    if options.get("groups", 1) != 1 or isinstance(options.get("padding"), str):
        return None
    kind = _CONVOLUTIONS[product.function]
    has_bias = product.bias is not None
    plain = kind(channels, out, tuple(size), **options, bias=has_bias, device="meta")
    return lambda inputs, errors: ConvGradients(plain, inputs, errors).gradients


def _linear_gradients(inputs: Tensor, errors: Tensor) -> dict[str, Tensor]:
    rows, of_rows = (
        part.flatten(1, -2) if part.dim() > 2 else part[:, None] for part in (inputs, errors)
    )
    return {"weight": torch.bmm(of_rows.transpose(1, 2), rows), "bias": of_rows.sum(dim=1)}
