"""The gradient engine: per-sample gradients of a model and a loss for R parallel runs.

R runs with different parameters and batches are processed together. Layers without parameters see
all examples as one batch, [R B, ...]; a layer with parameters is called through `BatchedLayer`,
which applies each run's parameters.

A batch is cut in two ways. The mechanism cuts it into microbatches, whose sums are added up, so
that memory does not grow with the batch. The engine cuts what it is given into chunks that fit the
cache: convolutions on a CPU, and all models in a low precision. All chunks of a microbatch have one
size (the last one is padded): products of one shape are rounded in one way, so that an example's
gradient does not depend on its batch. In a low precision the size is the same for all microbatches;
else it depends on the microbatch's, which the mechanism keeps constant where data need protection.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients.decompositions import Rows
from oso_dp.gradients.forward_backward import (
    CONVOLUTIONS,
    BatchedLayer,
    Call,
    Expanded,
    ForwardBackward,
    Traits,
    patched_forward,
)
from oso_dp.gradients.layer_calls import MSG_MIXES_EXAMPLES, check_layer, is_opaque
from oso_dp.gradients.layer_gradients import (
    CHUNK_BYTES,
    LARGEST_NORM,
    LayerGradients,
    Loss,
    Sums,
    is_async_device,
)
from oso_dp.gradients.other_layers import WholeModelGradients
from oso_dp.gradients.precision import PRECISIONS, Precision, float32
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.shared_parameters import Target
from oso_dp.gradients.structured import Structure, call_model, map_tensors, select, tensors_of

# Examples of a run per chunk; more for images smaller than MNIST's.
CHUNK_SIZE = {"cpu": 64, "cuda": 256}
_MNIST_PIXELS = 28 * 28
_CHUNKS_HELD = 64  # times `CHUNK_BYTES`: gradients of a model that is taken whole


class GradientEngine:
    """Computes per-sample gradients of `loss(model(inputs), targets)`, a loss per example.

    Parameters are passed as a flat vector [P], in the order of `model.parameters()`; the weights of
    `model` are not used. Raises OsoError for models that mix examples (batch normalization).
    precision: of products; results have the dtype of the parameters. is_whole_model: gradients by
    torch.func for the complete model, which takes any model that treats examples independently,
    more time, and memory for as many gradients as examples in a chunk.

    Attributes:
        layers: those that own parameters, by name; a parameter that several share belongs to the
            first. `layer_sizes` has how many numbers each owns.
        traits: what the model does in its forward pass (`find_traits`).
        takes_several_runs: whether runs can go through the model together.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        precision: Precision = PRECISIONS["float32"],
        is_whole_model: bool = False,
    ) -> None:
        self.model, self.loss, self.precision = model, loss, precision
        self.shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())  # P
        for name, layer in model.named_modules():
            check_layer(name, layer)
        model.requires_grad_(False)  # gradients are taken at the layers' outputs instead
        self.traits = Traits()
        self._set_layers(is_whole_model)

    def _set_layers(self, is_whole_model: bool) -> None:
        """Decide which layers have gradients of their own."""
        model = self.model
        self.is_whole_model = is_whole_model
        self._users = {"": model} if is_whole_model else _find_layers(model)
        self._targets = _find_targets(self._users, is_whole_model)
        self._expanded_names = [
            name
            for name, layer in self._users.items()
            if not (is_whole_model or is_opaque(layer)) and _is_expanded(layer)
        ]
        # Of each layer that owns parameters: a parameter of several belongs to the first.
        self.layer_shapes: dict[str, dict[str, torch.Size]] = {}
        for name, targets in self._targets.items():
            own = dict(self._users[name].named_parameters(remove_duplicate=False))
            shapes = {
                key: own[key].shape for key, target in targets.items() if target.layer == name
            }
            if shapes:
                self.layer_shapes[name] = shapes
        self.takes_several_runs = not any(map(self._holds_layers, self.called_layers))
        self.layers = {name: self._users[name] for name in self.layer_shapes}
        self.layer_sizes = {  # how many numbers they own
            name: sum(shape.numel() for shape in shapes.values())
            for name, shapes in self.layer_shapes.items()
        }

    def __call__(
        self,
        flat: Tensor,
        inputs: Structure,
        targets: Tensor,
        absent: Tensor | None = None,
        seed: int | None = None,
        views: int = 1,
    ) -> "BatchGradients":
        """The per-sample gradients at flat [R, P] for inputs [R, B, ...] and targets [R, B, ...].

        absent: bool [R, B], examples that contribute to no sum. seed: of what the model draws at
        random (dropout). views: K > 1 for inputs [R, B, K, ...], of which an example's loss is the
        mean.
        """
        return BatchGradients(self, flat, inputs, targets, absent, seed, views)

    def copy(self, whole_model: bool | None = None, exact: bool = False) -> "GradientEngine":
        """The same with a copy of the model and no low precision.

        whole_model: whether the model is taken whole (default: as here). exact: in float64.
        """
        model, loss = copy.deepcopy(self.model), self.loss
        if exact:
            model, loss = model.double(), _as_float64(loss)
        whole = self.is_whole_model if whole_model is None else whole_model
        copied = GradientEngine(model, loss, is_whole_model=whole)
        copied.traits = self.traits
        return copied

    def take_whole_model(self) -> None:
        """From now on, by torch.func for the complete model, one example's at a time."""
        self._set_layers(is_whole_model=True)

    def outputs(self, flat: Tensor, inputs: Structure, training: bool = True) -> Structure:
        """The model's outputs with these parameters [P]; `training`: in the mode that it is in."""
        parameters = self.parameters(flat)
        with nullcontext() if training else _eval_mode(self.model), self._calling(flat, parameters):
            return self._outputs(parameters, inputs)

    def weighted_gradient(
        self, flat: Tensor, inputs: Structure, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses [B], and the gradient of sum_i weights_i loss_i at parameters [P], by
        ordinary differentiation."""
        at = flat.detach().clone().requires_grad_(True)
        parameters = self.parameters(at)
        with self._calling(at, parameters):  # the backward pass, too: it may compute a part anew
            losses = self.loss(self._outputs(parameters, inputs), targets)
            used = weights != 0
            (gradient,) = torch.autograd.grad(losses[used] @ weights[used].to(losses), at)
        return losses.detach(), gradient

    @contextmanager
    def _calling(self, flat: Tensor, parameters: dict[str, Tensor]) -> Iterator[None]:
        """Inside, layers are called with these parameters [P], by name in `parameters`."""
        layers = {}
        if not self.is_whole_model:
            layers = self._batched_layers({name: one[None] for name, one in parameters.items()})

        def forward(name: str, *args: Any, **kwargs: Any) -> Any:
            return layers[name](args, kwargs, BatchedLayer.outputs)

        with self.precision.products(flat.device), patched_forward(layers, forward):
            yield

    def _outputs(self, parameters: dict[str, Tensor], inputs: Structure) -> Structure:
        outputs = call_model(self.model, inputs, parameters)
        if not self.precision.low:
            return outputs
        dtype = next(iter(parameters.values())).dtype
        return map_tensors(lambda one: one.to(dtype) if one.is_floating_point() else one, outputs)

    @property
    def called_layers(self) -> frozenset[str]:
        """The layers that are called with the parameters of each run, by name."""
        return frozenset(self._users).difference(self._expanded_names)

    def parameters(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views into the flat vectors [..., P]."""
        # In one operation: the gradient of each slice would be as long as the vector.
        parts = flat.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: part.view((*flat.shape[:-1], *shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def start_pass(self, flat: Tensor, views: int = 1) -> ForwardBackward:
        """A pass at flat [R, P], with so many views of each example."""
        by_name = self.parameters(flat)
        layers, expanded = self._batched_layers(by_name), self._expanded(by_name)
        return ForwardBackward(layers, expanded, self.layer_shapes, self.traits, views)

    def trace_calls(self, flat: Tensor, inputs: Structure) -> list[Call]:
        """The calls of layers in a forward pass on two made-up examples."""
        made = self.start_pass(flat[None])
        zeros = map_tensors(lambda one: one.new_zeros(2, *one.shape[1:]), inputs)
        with seeded(0, flat.device), torch.enable_grad():
            made.run_forward(self.model, zeros)
        return made.calls

    def whole_model_gradients(
        self, flat: Tensor, inputs: Structure, targets: Tensor, views: int
    ) -> dict[str, LayerGradients]:
        """For inputs [N, ...] and targets [N, ...] of the runs at flat [R, P]."""
        by_name = self.parameters(flat)
        draws, batch = self.traits.draws_random, (inputs, targets)
        return {"": WholeModelGradients(self.model, self.loss, *batch, by_name, views, draws)}

    def _batched_layers(self, parameters: dict[str, Tensor]) -> dict[str, BatchedLayer]:
        layers = {}
        for name, layer in self._users.items():
            if name in self._expanded_names:
                continue
            targets = self._targets[name]
            own = {key: parameters[_global_name(target)] for key, target in targets.items()}
            layers[name] = BatchedLayer(
                layer, own, targets, self.precision, self._holds_layers(name)
            )
        return layers

    def _holds_layers(self, name: str) -> bool:
        """Whether parameters below this layer are not its own."""
        prefix = f"{name}." if name else ""
        below = {key.removeprefix(prefix) for key in self.shapes if key.startswith(prefix)}
        return not below <= self._targets[name].keys()

    def _expanded(self, parameters: dict[str, Tensor]) -> list[Expanded]:
        return [
            Expanded(self._users[name], key, parameters[_global_name(target)], target)
            for name in self._expanded_names
            for key, target in self._targets[name].items()
        ]

    def chunk_size(self, inputs: Structure, views: int = 1) -> int | None:
        """Examples per chunk of a run; None for the complete batch. inputs [B, ...], or [B, K, ...]
        of K views."""
        first = tensors_of(inputs)[0]
        device = first.device.type
        if self.is_whole_model:
            return max(1, CHUNK_BYTES[device] * _CHUNKS_HELD // (8 * self.size))
        if self.precision.low:
            return max(1, CHUNK_SIZE[device] // views)
        if device != "cpu" or not any(
            isinstance(one, CONVOLUTIONS) for one in self.layers.values()
        ):
            return None
        views_of_mnist = CHUNK_SIZE["cpu"] * max(
            1, views * _MNIST_PIXELS // first.shape[1:].numel()
        )
        return max(1, views_of_mnist // views)

    def chunks(
        self, inputs: Structure, targets: Tensor, views: int = 1
    ) -> Iterator[tuple[Structure, Tensor]]:
        """Of every run's batch, [R, width, ...] each; zeros pad the last one."""
        size = targets.shape[1]
        width = self.chunk_size(map_tensors(lambda one: one.flatten(0, 1), inputs), views) or size
        if size and (self.is_whole_model or not self.precision.low):
            width = math.ceil(size / math.ceil(size / width))
        for start in range(0, size, width):
            part = slice(start, start + width)
            xs, ys = select(inputs, (slice(None), part)), targets[:, part]
            lack = width - ys.shape[1]
            if lack:
                xs, ys = map_tensors(partial(_pad, lack=lack), xs), _pad(ys, lack)
            yield xs, ys


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
        inputs: Structure,
        targets: Tensor,
        absent: Tensor | None = None,
        seed: int | None = None,
        views: int = 1,
    ) -> None:
        self.engine, self.flat, self.inputs, self.targets = engine, flat, inputs, targets
        self.absent, self.seed, self.views = absent, seed, views
        self.shape = targets.shape[:2]  # R, B
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
                with seeded(self.seed, self.flat.device):
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
                flattened += [
                    sums[key].unsqueeze(2).flatten(2) for key in self.engine.layer_shapes[layer]
                ]
        return torch.cat(flattened, dim=2)

    def plain_sums(self, present: Tensor) -> Tensor:
        """sum_i g_ri over those present, by ordinary differentiation, [R, P]."""
        with seeded(self.seed, self.flat.device):
            return torch.stack(
                [self._plain_sum(run, present[run]) for run in range(len(self.flat))]
            )

    def _plain_sum(self, run: int, present: Tensor) -> Tensor:
        engine, flat = self.engine, self.flat[run]
        inputs, targets = select(self.inputs, run), self.targets[run]
        total = torch.zeros_like(self.flat[run])
        width = engine.chunk_size(inputs, self.views) or max(1, len(targets))
        for start in range(0, len(targets), width):
            part = slice(start, start + width)
            xs, ys, weights = select(inputs, part), targets[part], present[part].to(flat.dtype)
            if self.views > 1:
                xs = map_tensors(lambda one: one.flatten(0, 1), xs)
                ys = ys.repeat_interleave(self.views, dim=0)
                weights = weights.repeat_interleave(self.views) / self.views
            total += engine.weighted_gradient(flat, xs, ys, weights)[1]
        return total

    def _take_gradients(self) -> Tensor:
        """Norms, float64 [R, B]; keeps each chunk's gradients."""
        engine, (runs, size) = self.engine, self.shape
        first = None if engine.is_whole_model else engine.start_pass(self.flat, self.views)
        measured = []
        for inputs, targets in engine.chunks(self.inputs, self.targets, self.views):
            xs = map_tensors(lambda one: one.flatten(0, 1), inputs)
            ys = targets.flatten(0, 1)
            with engine.precision.products(self.flat.device):
                if first is None:
                    gradients = engine.whole_model_gradients(self.flat, xs, ys, self.views)
                else:
                    gradients = first.again().run(engine.model, engine.loss, xs, ys)
            norms = [_checked_norms(of_layer, len(ys)) for of_layer in gradients.values()]
            measured.append(torch.stack(norms).unflatten(1, (runs, -1)))
            self._chunks.append(gradients)
            self._widths.append(targets.shape[1])
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
        self._layer_norms = dict(zip(engine.layers, by_layer, strict=True))
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
        has_parameters = next(layer.named_parameters(recurse=is_opaque(layer)), None) is not None
        if has_parameters and not name.startswith(whole):
            layers[name] = layer
            if is_opaque(layer):
                whole += (f"{name}." if name else "",)
    return layers


def _find_targets(
    layers: dict[str, nn.Module], is_whole_model: bool
) -> dict[str, dict[str, Target]]:
    """Of each layer: where the gradients of its parameters belong, by their names."""
    owners: dict[int, Target] = {}
    targets: dict[str, dict[str, Target]] = {}
    for name, layer in layers.items():
        recurse = is_whole_model or is_opaque(layer)
        own = layer.named_parameters(recurse=recurse, remove_duplicate=is_whole_model)
        targets[name] = {
            key: owners.setdefault(id(parameter), Target(name, Rows(key))) for key, parameter in own
        }
    return targets


def _global_name(target: Target) -> str:
    return f"{target.layer}.{target.rows.name}" if target.layer else target.rows.name


def _is_expanded(layer: nn.Module) -> bool:
    """Whether a layer's parameters are rows [1, ...] that it uses beside layers inside it."""
    own = list(layer.named_parameters(recurse=False))
    has_layers = len(list(layer.named_parameters())) > len(own)
    return has_layers and all(p.dim() > 1 and len(p) == 1 for _, p in own)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for layer, training in modes:
            layer.training = training


def _as_float64(loss: Loss) -> Loss:
    """A loss that is a module holds its weights of classes in float32."""
    if not isinstance(loss, nn.Module):
        return loss
    try:
        exact: Loss = copy.deepcopy(loss).double()
    except Exception:  # whatever a module of the user's may hold: then as it is
        return loss
    return exact


def _pad(values: Tensor, lack: int) -> Tensor:
    """[R, B, ...] with `lack` zeros more for each run."""
    return torch.cat([values, values.new_zeros(len(values), lack, *values.shape[2:])], dim=1)
