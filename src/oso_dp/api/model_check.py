"""What would become of a model in private training: `check`, and `replace_batch_norm`."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_model, find_precision
from oso_dp.gradients.decompositions import find_decomposition
from oso_dp.gradients.forward_backward import find_rule
from oso_dp.gradients.layer_calls import BATCH_NORMS, check_layer
from oso_dp.gradients.layer_gradients import Loss
from oso_dp.gradients.other_layers import FunctionalGradients
from oso_dp.gradients.structured import Structure, map_tensors, tensors_of
from oso_dp.training.task import TensorExamples
from oso_dp.training.user_model import UserModel, count_classes, plain_module

_CPU = torch.device("cpu")
_MAX_GROUPS = 32


@dataclass(frozen=True)
class LayerCheck:
    """One layer of a model.

    Attributes:
        name: as in `model.named_modules()`.
        kind: its class.
        outcome: "trained", "frozen", "slow" (by torch.func), "replaced" (with `fix=True`) or
            "refused".
        why: the reason, or how its gradients are computed.
    """

    name: str
    kind: str
    outcome: str
    why: str


@dataclass(frozen=True)
class ModelCheck:
    """The result of `check`; `str()` is a table.

    Attributes:
        layers: those with parameters, and those that would be replaced or refused.
        notes: what is done for the model as a whole.
        refused: the line with which training would end, or "" if it would start.
    """

    layers: tuple[LayerCheck, ...]
    notes: tuple[str, ...]
    refused: str

    @property
    def ok(self) -> bool:
        """Whether training would start, with `fix=True` if a layer has to be replaced."""
        return not self.refused

    def __str__(self) -> str:
        head = ("layer", "class", "outcome", "why")
        rows = [head, *((one.name, one.kind, one.outcome, one.why) for one in self.layers)]
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
            )
            for row in rows
        ]
        verdict = f"refused: {self.refused}" if self.refused else "can be trained"
        return "\n".join([*lines, *self.notes, verdict])


def check(
    model: nn.Module, example: Any, loss: Loss | None = None, targets: Any = None
) -> ModelCheck:
    """Say, before any training, what `train_private` would do with a model.

    Args:
        model: a module, which stays as it is.
        example: the model's inputs for one or more examples, [n, ...]: a tensor or array, a tuple
            of arguments or a dictionary of keywords. Only shapes and types are used.
        loss: as in `train_private`. Default: the mean of the squared outputs.
        targets: with a loss, the targets of one or more examples, [n, ...]; as `example`.

    Returns:
        Layers that would be trained, frozen, slow, replaced or refused, and why.

    Example:
        >>> print(oso_dp.check(model, inputs[:1], loss, targets[:1]))
    """
    if (loss is None) != (targets is None):
        missing = "loss" if loss is None else "targets"
        raise OsoError(f"{missing}: missing; loss and an example's targets go together")
    if not isinstance(model, nn.Module):
        raise OsoError(f"model: {type(model).__name__}; must be a torch.nn.Module")
    model = plain_module(model)
    fixed, replaced = without_batch_norm(model)
    layers = [
        LayerCheck(name, type(model.get_submodule(name)).__name__, "replaced", "with fix=True")
        for name in replaced
    ]
    notes: list[str] = []
    for name, layer in fixed.named_modules():
        try:
            check_layer(name, layer)
        except OsoError as error:
            layers.append(LayerCheck(name, type(layer).__name__, "refused", _reason(error)))
    refused = next((f"model: {one.why}" for one in layers if one.outcome == "refused"), "")
    if not refused:
        try:
            found, notes = _trial(fixed, example, loss, targets)
        except OsoError as error:
            refused = str(error)
        else:
            names = {one.name for one in layers}
            layers += [one for one in found if one.name not in names]
    if replaced:
        notes.append(f"pass fix=True: {describe_replaced(replaced)}")
    order = {name: place for place, (name, _) in enumerate(model.named_modules())}
    layers.sort(key=lambda one: order[one.name])
    return ModelCheck(tuple(layers), tuple(notes), refused)


def _trial(
    model: nn.Module, example: Any, loss: Loss | None, target: Any
) -> tuple[list[LayerCheck], list[str]]:
    inputs = _none_of("example", example)
    targets = torch.zeros(0) if loss is None else _none_of("targets", target)
    if not torch.is_tensor(targets):
        raise OsoError(f"targets: {type(target).__name__}; must be a tensor")
    examples = TensorExamples(inputs, targets)
    own = UserModel(model)
    engine = own.make_engine(loss or _squares, examples, find_precision("float32", _CPU), _CPU)
    weights = own.weights(_CPU)
    check_model(engine, weights, inputs, targets, count_classes(engine, weights, examples))
    frozen = [
        LayerCheck(name, type(layer).__name__, "frozen", "no parameter requires a gradient")
        for name, layer in model.named_modules()
        if (of_layer := list(layer.parameters(recurse=False)))
        and not any(parameter.requires_grad for parameter in of_layer)
    ]
    return _outcomes(engine, weights, inputs) + frozen, _notes(engine)


def _none_of(name: str, values: Any) -> Structure:
    """The shapes and types of examples, as tensors of no rows."""
    arrays = tree_map_only(np.ndarray, torch.from_numpy, values)
    empty = map_tensors(_no_rows, arrays)
    if not tensors_of(empty):
        raise OsoError(f"{name}: {type(values).__name__}; must be a tensor, or hold tensors")
    return empty


def _no_rows(values: Tensor) -> Tensor:
    none = values.detach().cpu()[:0]
    return none.float() if none.is_floating_point() else none  # as in training


def _squares(outputs: Structure, targets: Tensor) -> Tensor:
    floats = [one for one in tensors_of(outputs) if one.is_floating_point()]
    rows = (one.reshape(len(targets), -1) for one in floats)
    return sum((one.square().mean(dim=1) for one in rows), torch.zeros(len(targets)))


def _outcomes(engine: GradientEngine, weights: Tensor, inputs: Structure) -> list[LayerCheck]:
    if engine.is_whole_model:
        return [
            LayerCheck(name, type(layer).__name__, "slow", "part of a model that is taken whole")
            for name, layer in engine.model.named_modules()
            if next(layer.named_parameters(recurse=False), None) is not None
        ]
    shapes = {name: shape for name, _, shape in engine.trace_calls(weights, inputs)}
    found = []
    for name, layer in engine.layers.items():
        outcome, why = "trained", "its parameters as rows [1, ...] of each example"
        if find_decomposition(layer):
            why = "by products with its weights"
        elif name in shapes:
            rule = find_rule(layer, torch.empty(shapes[name], device="meta"))
            if rule is FunctionalGradients:
                outcome, why = "slow", "torch.func; there is no rule for this class or its options"
            else:
                why = rule.__name__
        found.append(LayerCheck(name, type(layer).__name__, outcome, why))
    return found


def _notes(engine: GradientEngine) -> list[str]:
    traits = engine.traits
    notes = []
    if engine.is_whole_model:
        notes.append("slow: torch.func computes the gradients of the whole model")
    if traits.draws_random:
        notes.append("random numbers (dropout): each example has its own, from the run's generator")
    if traits.shared_rows:
        names = ", ".join(sorted({name for name, *_ in traits.shared_rows}))
        notes.append(f"one row for all examples is expanded in: {names}")
    if traits.changed_outputs:
        names = ", ".join(sorted(traits.changed_outputs))
        notes.append(f"outputs that are changed in place are copied: {names}")
    return notes


def _reason(error: OsoError) -> str:
    return str(error).removeprefix("model: ")


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """A copy with GroupNorm in place of BatchNorm, as `train_private(fix=True)` trains it.

    GroupNorm has the weight and bias of the layer that it replaces, and up to 32 groups. BatchNorm
    in eval mode stays. InstanceNorm with running statistics becomes GroupNorm with a group for each
    channel.
    """
    return without_batch_norm(model)[0]


def without_batch_norm(model: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """`replace_batch_norm`, and the names of the layers that were replaced."""
    model = copy.deepcopy(plain_module(model))
    replaced = []
    for name, layer in list(model.named_modules()):
        if not (isinstance(layer, BATCH_NORMS) and layer.training):
            continue
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
            if not layer.track_running_stats:
                continue
            groups = layer.num_features
        else:
            groups = _groups(layer)
        norm = nn.GroupNorm(groups, layer.num_features, layer.eps, affine=layer.affine)
        if layer.affine:
            norm.weight, norm.bias = layer.weight, layer.bias
        replaced.append(name)
        if not name:
            return norm, ("",)
        model.set_submodule(name, norm)
    return model, tuple(replaced)


def _groups(layer: Any) -> int:
    """Of a number of channels; rows of numbers have at least four channels in a group."""
    channels = layer.num_features
    if isinstance(layer, nn.BatchNorm1d):
        channels = max(1, channels // 4)
    return math.gcd(channels, _MAX_GROUPS) if layer.num_features % channels == 0 else 1


def describe_replaced(names: Sequence[str]) -> str:
    """For a statement."""
    return f"GroupNorm in place of BatchNorm in {', '.join(names)}" if names else ""
