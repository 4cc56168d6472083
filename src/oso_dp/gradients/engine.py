"""The gradient engine: per-sample gradients of a model and a loss for R parallel runs.

R runs with different parameters and batches are processed together. Layers without parameters see
all examples as one batch, [R B, ...]; a layer with parameters is called through `BatchedLayer`,
which applies each run's parameters.

A batch is cut in two ways. The mechanism cuts it into microbatches, whose sums are added up, so
that memory does not grow with the batch. The engine cuts what it is given into chunks that fit the
cache: convolutions on a CPU, and all models in a low precision. In a low precision all chunks have
one size (the last one is padded): products of one shape are rounded in one way, so that an
example's gradient does not depend on its batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.forward_backward import (
    CONVOLUTIONS,
    BatchedLayer,
    compute_layer_gradients,
    patched_forward,
)
from oso_dp.gradients.layer_calls import MSG_MIXES_EXAMPLES, check_layer, is_opaque
from oso_dp.gradients.layer_gradients import (
    LARGEST_NORM,
    LayerGradients,
    Loss,
    Sums,
    is_async_device,
)
from oso_dp.gradients.precision import PRECISIONS, Precision, float32

# Examples of a run per chunk; more for images smaller than MNIST's.
CHUNK_SIZE = {"cpu": 64, "cuda": 256}
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
        self.size = sum(shape.numel() for shape in self.shapes.values())  # P
        self.layers = _find_layers(model)
        self.layer_parameters: dict[str, list[str]] = {}  # names of each layer's own parameters
        self.layer_sizes: dict[str, int] = {}  # how many numbers they are
        for name, layer in self.layers.items():
            own = dict(layer.named_parameters(recurse=is_opaque(layer)))
            self.layer_parameters[name] = list(own)
            self.layer_sizes[name] = sum(parameter.numel() for parameter in own.values())
        if sum(self.layer_sizes.values()) != self.size:
            raise OsoError("model: two layers share a parameter; parameters must not be shared")
        for name, layer in model.named_modules():
            check_layer(name, layer)
        model.requires_grad_(False)  # gradients are taken at the layers' outputs instead

    def __call__(
        self, flat: Tensor, inputs: Tensor, targets: Tensor, absent: Tensor | None = None
    ) -> "BatchGradients":
        """The per-sample gradients at flat [R, P] for inputs [R, B, ...] and targets [R, B, ...].

        absent: bool [R, B], examples that contribute to no sum.
        """
        return BatchGradients(self, flat, inputs, targets, absent)

    def outputs(self, flat: Tensor, inputs: Tensor) -> Tensor:
        """The model's outputs with these parameters [P]."""
        views = self.views(flat)
        layers = self._batched_layers({name: view[None] for name, view in views.items()})

        def forward(name: str, *args: Any, **kwargs: Any) -> Any:
            call = layers[name].bind(args, kwargs)
            return call.returned(layers[name].outputs(call))

        with self.precision.products(flat.device), patched_forward(layers, forward):
            outputs = torch.func.functional_call(self.model, views, (inputs,))
        return outputs.to(flat.dtype) if self.precision.low else outputs

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views into the flat vectors [..., P]."""
        # In one operation: the gradient of each slice would be as long as the vector.
        parts = flat.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: part.view((*flat.shape[:-1], *shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def batched_layers(self, flat: Tensor) -> dict[str, BatchedLayer]:
        """The layers with parameters, by name, at flat [R, P]."""
        return self._batched_layers(self.views(flat))

    def _batched_layers(self, views: dict[str, Tensor]) -> dict[str, BatchedLayer]:
        layers = {}
        for name, layer in self.layers.items():
            prefix = f"{name}." if name else ""
            below = {
                key.removeprefix(prefix): views[key] for key in views if key.startswith(prefix)
            }
            own = {key: below.pop(key) for key in self.layer_parameters[name]}
            layers[name] = BatchedLayer(layer, own, below, self.precision)
        return layers

    def chunk_size(self, inputs: Tensor) -> int | None:
        """Examples per chunk of a run; None for the complete batch. inputs [B, ...]."""
        device = inputs.device.type
        if self.precision.low:
            return CHUNK_SIZE[device]
        if device != "cpu" or not any(
            isinstance(one, CONVOLUTIONS) for one in self.layers.values()
        ):
            return None
        return CHUNK_SIZE["cpu"] * max(1, _MNIST_PIXELS // inputs.shape[1:].numel())

    def chunks(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Of every run's batch, [R, width, ...] each; zeros pad the last one."""
        width = self.chunk_size(inputs.flatten(0, 1)) or inputs.shape[1]
        for start in range(0, inputs.shape[1], width):
            xs, ys = inputs[:, start : start + width], targets[:, start : start + width]
            lack = width - xs.shape[1] if self.precision.low else 0
            yield (_pad(xs, lack), _pad(ys, lack)) if lack else (xs, ys)


class BatchGradients:
    """Per-sample gradients of R runs: flat [R, P], inputs [R, B, ...], targets [R, B, ...].

    The forward and backward pass runs when norms or weighted sums are first asked for. Empty
    batches have norms [R, 0] and sums of zero. absent: bool [R, B], of examples that count as if
    their gradients were not finite, whatever stands in their places.
    """

    def __init__(
        self,
        engine: GradientEngine,
        flat: Tensor,
        inputs: Tensor,
        targets: Tensor,
        absent: Tensor | None = None,
    ) -> None:
        self.engine, self.flat, self.inputs, self.targets = engine, flat, inputs, targets
        self.absent = absent
        self.shape = inputs.shape[:2]  # R, B
        self._chunks: list[dict[str, LayerGradients]] = []  # by the layer's name
        self._widths: list[int] = []  # examples of a run in each chunk
        self._norms: Tensor | None = None
        self._layer_norms: dict[str, Tensor] = {}

    def norms(self) -> Tensor:
        """2-norms, [R, B]; inf for one whose gradient is not finite, or too large to add up.

        Such an example's gradient is zero from then on.
        """
        if self._norms is None:
            self._norms = self.flat.new_zeros(self.shape)
            if self._norms.numel():
                self._norms = self._take_gradients().to(self.flat.dtype)
        return self._norms

    def layer_norms(self) -> dict[str, Tensor]:
        """Of each layer's part, float64 [R, B]; inf in every layer where `norms` is inf."""
        if self.norms().numel() == 0:
            return dict.fromkeys(self.engine.layers, self.norms())
        return self._layer_norms

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[r, j, i] g_ri: weights [R, J, B] -> [R, J, P], or of these layers only."""
        wanted = self.engine.layers if layers is None else layers
        if self.norms().numel() == 0:
            size = sum(self.engine.layer_sizes[layer] for layer in wanted)
            return self.flat.new_zeros(*weights.shape[:2], size)
        parts, flattened = self._split(weights), []
        with float32(weights.device):
            for layer in wanted:
                sums: Sums | None = None
                for chunk, part in zip(self._chunks, parts, strict=True):
                    sums = chunk[layer].weighted_sums(part, sums)
                assert sums is not None
                flattened += [sums[key].flatten(2) for key in self.engine.layer_parameters[layer]]
        return torch.cat(flattened, dim=2)

    def plain_sums(self, present: Tensor) -> Tensor:
        """sum_i g_ri over those present, by ordinary differentiation, [R, P]."""
        return torch.stack([self._plain_sum(run, present[run]) for run in range(len(self.flat))])

    def _plain_sum(self, run: int, present: Tensor) -> Tensor:
        engine, flat = self.engine, self.flat[run].detach().requires_grad_(True)
        inputs, targets = self.inputs[run], self.targets[run]
        total = torch.zeros_like(self.flat[run])
        width = engine.chunk_size(inputs) or max(1, len(inputs))
        for start in range(0, len(inputs), width):
            part = slice(start, start + width)
            losses = engine.loss(engine.outputs(flat, inputs[part]), targets[part])
            with engine.precision.products(flat.device):
                total += torch.autograd.grad(losses[present[part]].sum(), flat)[0]
        return total

    def _take_gradients(self) -> Tensor:
        """Norms, float64 [R, B]; keeps each chunk's gradients."""
        engine, (runs, size) = self.engine, self.shape
        layers, measured = engine.batched_layers(self.flat), []
        for inputs, targets in engine.chunks(self.inputs, self.targets):
            xs, ys = inputs.flatten(0, 1), targets.flatten(0, 1)
            with engine.precision.products(self.flat.device):
                gradients = compute_layer_gradients(engine.model, engine.loss, layers, xs, ys)
            norms = [_checked_norms(of_layer, len(xs)) for of_layer in gradients.values()]
            measured.append(torch.stack(norms).unflatten(1, (runs, -1)))
            self._chunks.append(gradients)
            self._widths.append(inputs.shape[1])
        by_layer = torch.cat(measured, dim=2)[:, :, :size].flatten(1)  # without what pads
        norms = torch.linalg.vector_norm(by_layer, dim=0)
        bad = ~(norms < LARGEST_NORM)
        if self.absent is not None:
            bad |= self.absent.flatten()
        # What pads the last chunk is dropped, too: zero times infinity is not zero.
        for chunk, part in zip(self._chunks, self._split(bad.view(self.shape), 1), strict=True):
            if is_async_device(part) or part.any():
                for of_layer in chunk.values():
                    of_layer.drop(part.flatten())
        by_layer = by_layer.masked_fill(bad, torch.inf).unflatten(1, self.shape)
        self._layer_norms = dict(zip(layers, by_layer, strict=True))
        return norms.masked_fill(bad, torch.inf).view(self.shape)

    def _split(self, values: Tensor, padding: int = 0) -> Sequence[Tensor]:
        """[..., B] by chunks, with this value for what pads the last one."""
        lack = sum(self._widths) - self.shape[1]
        padded = F.pad(values, (0, lack), value=padding) if lack else values
        return padded.split(self._widths, dim=-1)


def _checked_norms(gradients: LayerGradients, examples: int) -> Tensor:
    """The layer's norms, [N]; OsoError if there is not one for each example."""
    norms = gradients.norms()
    if len(norms) != examples:  # several rows of one example would be clipped separately
        raise OsoError(f"model: a layer's input {MSG_MIXES_EXAMPLES}; it must have one row each")
    return norms


def _find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with parameters by name; those inside one that is taken whole are part of it."""
    layers: dict[str, nn.Module] = {}
    whole: tuple[str, ...] = ()
    for name, layer in model.named_modules():
        has_parameters = next(layer.parameters(recurse=False), None) is not None
        if has_parameters and not name.startswith(whole):
            layers[name] = layer
            if is_opaque(layer):
                whole += (f"{name}." if name else "",)
    return layers


def _pad(values: Tensor, lack: int) -> Tensor:
    """[R, B, ...] with `lack` zeros more for each run."""
    return torch.cat([values, values.new_zeros(len(values), lack, *values.shape[2:])], dim=1)
