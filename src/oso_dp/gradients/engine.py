"""The gradient engine: per-sample gradients of a model and a loss for R parallel runs.

R runs with different parameters and batches are processed together. Layers without parameters see
all examples as one batch, [R B, ...]; a layer with parameters is called through `ForwardBackward`,
which applies each run's parameters and stores what the rules need.

Convolutions on a CPU, and all models in a low precision, are processed in microbatches, so that
intermediate results fit the cache and memory does not grow with the batch. In a low precision all
microbatches have one size (the last one is padded): products of one shape are rounded in one way,
so that an example's gradient does not depend on its batch.
"""

import copy
from collections.abc import Iterator, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.batch import BatchGradients
from oso_dp.gradients.batched_layers import LayerOutputs
from oso_dp.gradients.forward_backward import ForwardBackward, patched_forward
from oso_dp.gradients.layer_calls import check_options, find_call_convention
from oso_dp.gradients.microbatches import MSG_MIXES_EXAMPLES, MicrobatchGradients, checked_norms
from oso_dp.gradients.precision import PRECISIONS, Precision
from oso_dp.gradients.protocol import LayerGradients, Loss

# Examples per microbatch of a run; more for images smaller than MNIST's.
MICROBATCH_SIZE = {"cpu": 64, "cuda": 256}
_MNIST_PIXELS = 28 * 28


class GradientEngine:
    """Computes per-sample gradients of `loss(model(inputs), targets)`, a loss per example.

    Parameters are passed as a flat vector [P], in the order of `model.parameters()`; the weights of
    `model` are not used. Raises OsoError for models that mix examples (batch normalization), use a
    layer twice, or share a parameter between layers. precision: of products; results have the dtype
    of the parameters.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, precision: Precision = PRECISIONS["float32"]
    ) -> None:
        self.model, self.loss, self.precision = model, loss, precision
        self.shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        sizes = [shape.numel() for shape in self.shapes.values()]
        self.size = sum(sizes)  # P
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        self._slices = {
            name: slice(a, b) for name, (a, b) in zip(self.shapes, pairwise(ends), strict=True)
        }
        self.layers = _find_layers(model)
        direct_parameters = {
            name: dict(layer.named_parameters(recurse=find_call_convention(layer).is_opaque))
            for name, layer in self.layers.items()
        }
        self.layer_parameters = {
            name: list(parameters) for name, parameters in direct_parameters.items()
        }
        self.layer_sizes = {
            name: sum(parameter.numel() for parameter in parameters.values())
            for name, parameters in direct_parameters.items()
        }
        if sum(self.layer_sizes.values()) != self.size:
            raise OsoError("model: two layers share a parameter; parameters must not be shared")
        for name, layer in model.named_modules():
            batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
            if batch_norm or getattr(layer, "track_running_stats", False):
                raise OsoError(
                    f"model: layer {name!r} is a {type(layer).__name__}, which {MSG_MIXES_EXAMPLES}"
                )
            check_options(name, layer)
        model.requires_grad_(False)  # gradients are taken at the layers' outputs instead

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views into the flat vectors [..., P]."""
        return {
            name: flat[..., part].view((*flat.shape[:-1], *self.shapes[name]))
            for name, part in self._slices.items()
        }

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with these parameters [P]."""
        views = self.views(flat)
        layers = self.layer_outputs(self.views(flat[None]))
        with (
            self.precision.products(flat.device),
            patched_forward(
                self.layers, lambda name, *given, **named: layers[name].call_patched(given, named)
            ),
        ):
            outputs = torch.func.functional_call(self.model, views, (inputs,))
        return outputs.to(flat.dtype) if self.precision.low else outputs

    def __call__(
        self, flat: Tensor, inputs: Tensor, targets: Tensor, absent: Tensor | None = None
    ) -> BatchGradients:
        """Gradients at flat [R, P] for inputs [R, B, ...] and targets [R, B, ...].

        absent: bool [R, B], examples that contribute to no sum.
        """
        return BatchGradients(self, flat, inputs, targets, absent)

    def losses(self, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Losses [R, B] at flat [R, P] for inputs and targets [R, B, ...]."""
        if inputs.shape[1] == 0:
            return flat.new_zeros(inputs.shape[:2])
        parts = []
        with torch.no_grad():
            for xs, ys in self._microbatches(inputs, targets):
                runs = zip(flat, xs, ys, strict=True)
                parts.append(torch.stack([self.loss(self.outputs(p, x), y) for p, x, y in runs]))
        return torch.cat(parts, dim=1)[:, : inputs.shape[1]]

    def layer_gradients(
        self, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> dict[str, LayerGradients]:
        """One forward and one backward pass; then each layer's rule, by the layer's name.

        flat [R, P], inputs [R, B, ...], targets [R, B, ...]; the rules take all examples in a row.
        """
        runs, size = inputs.shape[:2]
        views = self.views(flat)
        layers = self.layer_outputs(views)
        rules: dict[str, list[LayerGradients]] = {name: [] for name in self.layers}
        norms: dict[str, list[Tensor]] = {name: [] for name in self.layers}
        for portion in self._microbatches(inputs, targets):
            with self.precision.products(flat.device):
                one = ForwardBackward(self.model, self.loss, self.layers, layers)
                by_layer = one.rules(*(part.flatten(0, 1) for part in portion))
            for name, rule in by_layer.items():
                rules[name].append(rule)
                norms[name].append(checked_norms(rule, runs * portion[0].shape[1]))
        return {
            name: MicrobatchGradients(portions, norms[name], runs, size)
            for name, portions in rules.items()
        }

    def layer_outputs(self, views: Mapping[str, Tensor]) -> dict[str, LayerOutputs]:
        """By the layer's name; views [R, ...]."""
        return {
            # A copy: while the model runs, the layer itself is called through `calling`.
            name: LayerOutputs(copy.copy(layer), *self._parameters(name, views), self.precision)
            for name, layer in self.layers.items()
        }

    def microbatch_size(self, inputs: Tensor) -> int | None:
        """Examples per microbatch of a run; None for the complete batch. inputs [B, ...]."""
        device = inputs.device
        convolutions = (nn.Conv1d, nn.ConvTranspose1d, nn.Conv2d, nn.ConvTranspose2d)
        small = device.type == "cpu" and any(
            isinstance(layer, convolutions) for layer in self.layers.values()
        )
        if self.precision.low:
            return MICROBATCH_SIZE[device.type]
        return (
            MICROBATCH_SIZE["cpu"] * max(1, _MNIST_PIXELS // inputs.shape[1:].numel())
            if small
            else None
        )

    def _parameters(
        self, name: str, views: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """A layer's own parameters, and those of layers inside it."""
        prefix = f"{name}." if name else ""
        all_parameters = {
            key.removeprefix(prefix): values
            for key, values in views.items()
            if key.startswith(prefix)
        }
        direct_parameters = {key: all_parameters.pop(key) for key in self.layer_parameters[name]}
        return direct_parameters, all_parameters

    def _microbatches(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Of every run's batch, [R, width, ...] each; what fills up the last are zeros."""
        width = self.microbatch_size(inputs.flatten(0, 1)) or inputs.shape[1]
        for start in range(0, inputs.shape[1], width):
            xs, ys = inputs[:, start : start + width], targets[:, start : start + width]
            lack = width - xs.shape[1] if self.precision.low else 0
            yield (_pad(xs, lack), _pad(ys, lack)) if lack else (xs, ys)


def _find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with parameters by name; those inside one that is taken whole are part of it."""
    layers: dict[str, nn.Module] = {}
    whole: tuple[str, ...] = ()
    for name, layer in model.named_modules():
        direct_parameters = next(layer.parameters(recurse=False), None) is not None
        if direct_parameters and not name.startswith(whole):
            layers[name] = layer
            if find_call_convention(layer).is_opaque:
                whole += (f"{name}." if name else "",)
    return layers


def _pad(values: Tensor, lack: int) -> Tensor:
    """[R, B, ...] with `lack` zeros more for each run."""
    return torch.cat([values, values.new_zeros(len(values), lack, *values.shape[2:])], dim=1)
