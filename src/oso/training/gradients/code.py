"""From a model and a loss to per-example gradients (the privacy room's `PerExampleGradients`).

R runs, each with parameters and a batch of its own, go through the model together. Layers without
parameters see all their examples in a row, [R B, ...]; a layer with parameters is called through
`_Pass`, which gives each run's part that run's parameters and keeps what the rules need.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from oso.errors import OsoError
from oso.training.gradients.batch import MIXES, BatchGradients
from oso.training.gradients.functional import FunctionalGradients
from oso.training.gradients.linear import linear_outputs
from oso.training.gradients.rules import LayerGradients, rule_for

Loss = Callable[[Tensor, Tensor], Tensor]


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
        self.layers = {
            name: layer
            for name, layer in model.named_modules()
            if next(layer.parameters(recurse=False), None) is not None
        }
        own = {
            name: dict(layer.named_parameters(recurse=False)) for name, layer in self.layers.items()
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
        """The parameters by name, as views into the flat vectors [..., P]."""
        return {
            name: flat[..., part].unflatten(-1, self.shapes[name])
            for name, part in self._slices.items()
        }

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with these parameters [P]."""
        return torch.func.functional_call(self.model, self.views(flat), (inputs,))

    def __call__(self, flat: Tensor, inputs: Tensor, targets: Tensor) -> BatchGradients:
        """Gradients at parameters `flat` [P] of a batch: inputs [B, ...], targets [B, ...].

        Or of R runs, each with a batch of its own: [R, P], [R, B, ...], [R, B, ...].
        """
        return BatchGradients(self, flat, inputs, targets)

    def layer_gradients(
        self, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> dict[str, LayerGradients]:
        """One forward and one backward pass; then each layer's rule, by the layer's name.

        flat [R, P], inputs [R, B, ...], targets [R, B, ...]; the rules take all examples in a row.
        """
        this = _Pass(self, self.views(flat))
        inputs, targets = inputs.flatten(0, 1), targets.flatten(0, 1)
        with this.watching():
            outputs = self.model(inputs)
        losses = self.loss(outputs, targets)
        if losses.shape != (len(inputs),):  # a mean would be clipped as if it were one example's
            raise OsoError(
                f"loss: has shape {list(losses.shape)} for {len(inputs)} examples; must be one each"
            )
        this.check()
        return this.rules(losses.sum())


class _Pass:
    """One pass of R runs, forward and backward.

    A layer's rule takes the gradient of its output as soon as the backward pass has it, so that
    neither that nor the layer's input is kept longer than in ordinary training.
    """

    def __init__(self, code: GradientCode, views: dict[str, Tensor]) -> None:
        self.code, self.views = code, views
        self.runs = len(next(iter(views.values())))
        self._leaves: list[Tensor] = []  # the outputs where the graph begins
        self._outputs: dict[str, tuple[Tensor, int]] = {}  # with their versions; until `check`
        self._inputs: dict[str, Tensor] = {}
        self._rules: dict[str, LayerGradients] = {}
        self._plain = {name: copy.copy(layer) for name, layer in code.layers.items()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the model runs, its layers with parameters are called through `_call`."""
        try:
            for name, layer in self.code.layers.items():
                layer.forward = lambda inputs, name=name: self._call(name, inputs)
            yield
        finally:
            for layer in self.code.layers.values():
                layer.__dict__.pop("forward", None)

    def check(self) -> None:
        """OsoError if the outputs are not what the layers returned, or a layer was left out."""
        for name, (output, version) in self._outputs.items():
            if output._version != version:
                raise OsoError(
                    f"model: the output of a {type(self._plain[name]).__name__} is changed in "
                    "place; use inplace=False"
                )
        self._outputs.clear()
        self._require(self._inputs)

    def rules(self, loss: Tensor) -> dict[str, LayerGradients]:
        """Each layer's rule, by the layer's name; this takes the backward pass."""
        torch.autograd.grad(loss, self._leaves)
        self._leaves.clear()  # an output, its hook and this pass would keep one another
        self._require(self._rules)
        return {name: self._rules[name] for name in self.code.layers}

    def _require(self, found: Mapping[str, object]) -> None:
        if missing := self.code.layers.keys() - found.keys():
            raise OsoError(f"model: layers {sorted(missing)} are not used in the forward pass")

    def _call(self, name: str, inputs: Tensor) -> Tensor:
        layer = self._plain[name]
        if name in self._inputs:
            raise OsoError(f"model: a {type(layer).__name__} is used twice in one pass")
        self._inputs[name] = inputs.detach()
        output = self._output(name, layer, inputs)
        if not output.requires_grad:  # the first layer's: here the graph begins
            self._leaves.append(output.requires_grad_(True))
        output.register_hook(partial(self._take, name))
        self._outputs[name] = output, output._version
        return output

    def _take(self, name: str, gradient: Tensor) -> None:
        layer, inputs = self._plain[name], self._inputs.pop(name)
        rule = rule_for(layer, inputs)
        if rule is not FunctionalGradients:
            self._rules[name] = rule(layer, inputs, gradient)
            return
        parameters = self._parameters(name)
        own = {key: parameters.pop(key) for key in self.code.layer_parameters[name]}
        self._rules[name] = FunctionalGradients(layer, inputs, gradient, own, parameters)

    def _parameters(self, name: str) -> dict[str, Tensor]:
        """The layer's own, each [R, ...]; and those of layers inside it."""
        prefix = f"{name}." if name else ""
        return {
            key.removeprefix(prefix): values
            for key, values in self.views.items()
            if key.startswith(prefix)
        }

    def _output(self, name: str, layer: nn.Module, inputs: Tensor) -> Tensor:
        parameters = self._parameters(name)
        own = {key: parameters[key] for key in self.code.layer_parameters[name]}
        if type(layer) is nn.Linear and inputs.dim() == 2:
            return linear_outputs(inputs, own["weight"], own.get("bias"))
        if self.runs > 1 and len(own) < len(parameters):
            raise OsoError(
                f"model: {type(layer).__name__} has parameters beside layers with parameters; "
                "such a model can train one run at a time only"
            )
        parts = [
            torch.func.functional_call(
                layer, {key: values[run] for key, values in own.items()}, (part,)
            )
            for run, part in enumerate(inputs.chunk(self.runs))
        ]
        return parts[0] if self.runs == 1 else torch.cat(parts)
