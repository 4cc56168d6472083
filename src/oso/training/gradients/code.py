"""From a model and a loss to per-example gradients (the privacy room's `PerExampleGradients`)."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from oso.errors import OsoError
from oso.training.gradients.rules import LARGEST_NORM, LayerGradients, rule_for

Loss = Callable[[Tensor, Tensor], Tensor]
MIXES = "mixes examples; allowed are layers that treat each by itself, such as GroupNorm"


class GradientCode:
    """Computes per-example gradients of `loss(model(inputs), targets)`, a loss per example.

    The parameters are handed in as one flat vector [P], in the order of `model.parameters()`; the
    model serves as the recipe only. Raises OsoError for models whose examples are not independent
    (batch normalisation), that use a layer twice, or whose layers share a parameter.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self.shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        sizes = [shape.numel() for shape in self.shapes.values()]
        self.size = sum(sizes)  # P
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        self._slices = {
            name: slice(a, b) for name, (a, b) in zip(self.shapes, pairwise(ends), strict=True)
        }
        self._layers = {
            name: layer
            for name, layer in model.named_modules()
            if next(layer.parameters(recurse=False), None) is not None
        }
        own = {
            name: dict(layer.named_parameters(recurse=False))
            for name, layer in self._layers.items()
        }
        self.layer_parameters = {name: list(parameters) for name, parameters in own.items()}
        self.layer_sizes = {
            name: sum(parameter.numel() for parameter in parameters.values())
            for name, parameters in own.items()
        }
        if sum(self.layer_sizes.values()) != self.size:
            raise OsoError("model: two layers share a parameter; each must have its own")
        for name, layer in model.named_modules():
            batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
            if batch_norm or getattr(layer, "track_running_stats", False):
                raise OsoError(f"model: layer {name!r} is a {type(layer).__name__}, which {MIXES}")
        model.requires_grad_(False)  # gradients are taken at the layers' outputs instead

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views into the flat vector [P]."""
        return {name: flat[part].view(self.shapes[name]) for name, part in self._slices.items()}

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with these parameters."""
        return torch.func.functional_call(self.model, self.views(flat), (inputs,))

    def __call__(self, flat: Tensor, inputs: Tensor, targets: Tensor) -> "BatchGradients":
        """Gradients at parameters `flat` [P] of a batch: inputs [B, ...], targets [B, ...]."""
        return BatchGradients(self, flat, inputs, targets)

    def layer_gradients(
        self, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> dict[str, LayerGradients]:
        """One forward and one backward pass; then each layer's rule, by the layer's name."""
        seen: dict[nn.Module, tuple[Tensor, Tensor, int]] = {}

        def watch(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            if layer in seen:
                raise OsoError(f"model: a {type(layer).__name__} is used twice in one pass")
            if not output.requires_grad:  # the first layer's: here the graph begins
                output.requires_grad_(True)
            seen[layer] = (arguments[0].detach(), output, output._version)

        hooks = [layer.register_forward_hook(watch) for layer in self._layers.values()]
        try:
            outputs = self.outputs(flat, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        losses = self.loss(outputs, targets)
        if losses.shape != (len(inputs),):  # a mean would be clipped as if it were one example's
            raise OsoError(
                f"loss: has shape {list(losses.shape)} for {len(inputs)} examples; must be one each"
            )
        for layer, (_, output, version) in seen.items():
            if output._version != version:
                raise OsoError(
                    f"model: the output of a {type(layer).__name__} is changed in place; "
                    "use inplace=False"
                )
        used = {name: layer for name, layer in self._layers.items() if layer in seen}
        missing = self._layers.keys() - used.keys()
        if missing:
            raise OsoError(f"model: layers {sorted(missing)} are not used in the forward pass")
        gradients = torch.autograd.grad(losses.sum(), [seen[layer][1] for layer in used.values()])
        with _holding(self.model, self.views(flat)):  # the rules read the layers' own parameters
            return {
                name: rule_for(layer, seen[layer][0])(layer, seen[layer][0], gradient)
                for (name, layer), gradient in zip(used.items(), gradients, strict=True)
            }

    def check_independence(self, flat: Tensor, shape: tuple[int, ...]) -> None:
        """OsoError if an example's output depends on the others in its batch.

        Tried on made-up examples of this shape (to stop because of real ones would tell of them):
        one among three, whose company and place change, the company by a large factor.
        """
        ramp = torch.linspace(-1, 1, 3 * math.prod(shape), device=flat.device, dtype=flat.dtype)
        one, second, third = ramp.view(3, *shape)
        here = self.outputs(flat, torch.stack((one, second, third)))[0]
        there = self.outputs(flat, torch.stack((1e4 * third, one, -1e4 * second)))[1]
        if not torch.allclose(here, there, rtol=1e-4, atol=1e-5 * float(here.abs().max())):
            raise OsoError(f"model: its output for an example {MIXES}")


@contextmanager
def _holding(model: nn.Module, views: dict[str, Tensor]) -> Iterator[None]:
    """Put the run's parameters into the model for a while."""
    kept = {name: parameter.data for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.data = views[name]
    try:
        yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.data = kept[name]


class BatchGradients:
    """The per-example gradients of one batch; an empty batch has norms [0] and sums of zero."""

    def __init__(self, code: GradientCode, flat: Tensor, inputs: Tensor, targets: Tensor) -> None:
        self.code, self.flat, self.inputs, self.targets = code, flat, inputs, targets
        self._layers: dict[str, LayerGradients] | None = None
        self._norms: Tensor | None = None
        self._layer_norms: dict[str, Tensor] = {}

    def norms(self) -> Tensor:
        """2-norms, [B]; inf for an example whose gradient is not finite, or too large to add up.

        Such an example's gradient is zero from then on.
        """
        if self._norms is None:
            if len(self.inputs) == 0:
                self._norms = self.flat.new_zeros(0)
                return self._norms
            self._layers = self.code.layer_gradients(self.flat, self.inputs, self.targets)
            each = torch.stack([rule.norms() for rule in self._layers.values()])
            if each.shape[1] != len(self.inputs):  # parts of one would be clipped one by one
                raise OsoError(f"model: a layer's input {MIXES}: one row each")
            self._norms = torch.linalg.vector_norm(each, dim=0).to(self.flat.dtype)
            bad = ~(self._norms < LARGEST_NORM)
            if bad.any():
                self._norms = self._norms.masked_fill(bad, torch.inf)
                for rule in self._layers.values():
                    rule.drop(bad)
            each = each.masked_fill(bad, torch.inf)
            self._layer_norms = dict(zip(self._layers, each, strict=True))
        return self._norms

    def layer_norms(self) -> dict[str, Tensor]:
        """2-norms of each layer's part, float64 [B]; inf in every layer where `norms` is inf."""
        if len(self.norms()) == 0:
            return {layer: self.flat.new_zeros(0) for layer in self.code.layer_sizes}
        return self._layer_norms

    def layer_sizes(self) -> dict[str, int]:
        return self.code.layer_sizes

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[j, i] g_i: weights [J, B] -> [J, P], or [J, P_g] of these layers only."""
        wanted = self.code.layer_sizes if layers is None else layers
        if len(self.norms()) == 0:
            size = sum(self.code.layer_sizes[layer] for layer in wanted)
            return self.flat.new_zeros(len(weights), size)
        assert self._layers is not None
        sums = []
        for layer in wanted:
            named = self._layers[layer].weighted_sums(weights)
            sums += [named[name].flatten(1) for name in self.code.layer_parameters[layer]]
        return torch.cat(sums, dim=1)

    def plain_sum(self) -> Tensor:
        """sum_i g_i by ordinary differentiation, [P]."""
        if len(self.inputs) == 0:
            return torch.zeros_like(self.flat)
        flat = self.flat.detach().requires_grad_(True)
        losses = self.code.loss(self.code.outputs(flat, self.inputs), self.targets)
        return torch.autograd.grad(losses.sum(), flat)[0]
