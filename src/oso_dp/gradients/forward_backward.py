"""One forward and backward pass of a model, which creates each layer's gradient rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.batched_layers import LayerOutputs
from oso_dp.gradients.functional import FunctionalGradients
from oso_dp.gradients.layer_calls import LayerCall
from oso_dp.gradients.protocol import LayerGradients, Loss
from oso_dp.gradients.registry import find_rule


@contextmanager
def patched_forward(layers: Mapping[str, nn.Module], call: Callable[..., Any]) -> Iterator[None]:
    """While a model runs, these layers of it are called through `call`, by name."""
    try:
        for name, layer in layers.items():
            layer.forward = partial(call, name)
        yield
    finally:
        for layer in layers.values():
            layer.__dict__.pop("forward", None)


class ForwardBackward:
    """One pass of R runs, forward and backward.

    `own`: the model's layers with parameters; `layers`: what is called in their place.

    A layer's rule takes the gradient of its output as soon as the backward pass has it, so that
    neither that nor the layer's input is kept longer than in ordinary training.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        modules: Mapping[str, nn.Module],
        layers: Mapping[str, LayerOutputs],
    ) -> None:
        self.model, self.loss, self.modules, self.layers = model, loss, modules, layers
        self._leaves: list[Tensor] = []  # the outputs where the graph begins
        self._outputs: list[tuple[str, Tensor, int]] = []  # with their versions; until `_check`
        self._inputs: dict[str, LayerCall] = {}
        self._rules: dict[str, LayerGradients] = {}

    def rules(self, inputs: Tensor, targets: Tensor) -> dict[str, LayerGradients]:
        """Each layer's rule, by the layer's name, for inputs [N, ...] and targets [N, ...]."""
        with patched_forward(self.modules, self._call):
            outputs = self.model(inputs)
        # A loss is no product: it is computed in the parameters' type.
        dtype = next(iter(self.layers.values())).dtype
        losses = self.loss(outputs.to(dtype), targets)
        if losses.shape != (len(inputs),):  # a mean would be clipped as if it were one example's
            raise OsoError(
                f"loss: shape {list(losses.shape)} for {len(inputs)} examples; must be one loss "
                "per example"
            )
        self._check()
        # A layer may return what the model does not use.
        torch.autograd.grad(losses.sum(), self._leaves, allow_unused=True)
        self._leaves.clear()  # an output, its hook and this pass would keep one another
        self._require(self._rules)
        return {name: self._rules[name] for name in self.layers}

    def _check(self) -> None:
        """OsoError if the outputs are not what the layers returned, or a layer was left out."""
        for name, output, version in self._outputs:
            if output._version != version:
                raise OsoError(
                    f"model: the output of a {type(self.layers[name].layer).__name__} is changed "
                    "in place; use inplace=False"
                )
        self._outputs.clear()
        self._require(self._inputs)

    def _require(self, used: Mapping[str, object]) -> None:
        if missing := self.layers.keys() - used.keys():
            raise OsoError(f"model: layers {sorted(missing)} are not used in the forward pass")

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        layer = self.layers[name]
        if name in self._inputs:
            raise OsoError(f"model: a {type(layer.layer).__name__} is used twice in one pass")
        taken = layer.bind(given, named)
        # The very numbers that the product takes.
        self._inputs[name] = taken.with_tensors(tuple(part.detach() for part in taken.tensors))
        outputs = layer(taken)
        if not outputs[0].requires_grad:  # the first layer's: here the graph begins
            self._leaves += [output.requires_grad_(True) for output in outputs]
        if len(outputs) == 1:
            outputs[0].register_hook(lambda gradient: self._take(name, gradient))
        else:
            outputs = MultiOutputHook.apply(partial(self._take, name), *outputs)
        self._outputs += [(name, output, output._version) for output in outputs]
        return layer.form.as_returned(outputs)

    def _take(self, name: str, *gradients: Tensor) -> None:
        layer, taken = self.layers[name], self._inputs.pop(name)
        rule = find_rule(layer.layer, taken.tensors[0])
        if rule is FunctionalGradients:
            self._rules[name] = FunctionalGradients(
                layer.layer, taken, gradients, layer.parameters, layer.inside
            )
        else:
            self._rules[name] = rule(layer.layer, taken.tensors[0], *gradients)


class MultiOutputHook(torch.autograd.Function):
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
