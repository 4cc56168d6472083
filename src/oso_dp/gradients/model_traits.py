"""What a model does in its forward pass, found on made-up examples before training.

`find_traits` looks for rows that all examples share, outputs that are changed in place, and random
numbers.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.forward_backward import Call, Traits
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, map_tensors

_SIZES = (2, 3, 5)  # of made-up batches
_MAX_SHARED = 50  # calls whose rows all examples share


def find_traits(engine: GradientEngine, flat: Tensor, inputs: Structure) -> Traits:
    """Of the engine's model at parameters [P], for inputs of these shapes and types, [*, ...].

    The model may raise any exception.
    """
    trial = engine.copy()
    trial.traits = Traits()
    drawn = _draws_random(trial, flat, inputs)
    if engine.is_whole_model:
        return Traits(draws_random=drawn)
    try:
        passes = [_forward(trial, flat, inputs, size) for size in _SIZES]
    except RuntimeError as error:
        if "in-place" not in str(error):
            raise
        # Of the first layer's output torch says so at once. Which ones these are, copies tell.
        trial.traits = Traits(changed_outputs=trial.called_layers)
        passes = [_forward(trial, flat, inputs, size) for size in _SIZES]
    changed = frozenset[str]().union(*(one.changed_outputs for one in passes))
    trial.traits = replace(trial.traits, changed_outputs=changed, draws_random=drawn)
    for _ in range(_MAX_SHARED):
        passes = [_forward(trial, flat, inputs, size) for size in _SIZES]
        found = _first_shared(passes, trial.traits)
        if found is None:
            break
        shared = trial.traits.shared_rows | {found}
        trial.traits = replace(trial.traits, shared_rows=shared)
    return trial.traits


class _Forward(NamedTuple):
    """What a forward pass showed."""

    calls: list[Call]
    changed_outputs: set[str]


def _forward(engine: GradientEngine, flat: Tensor, inputs: Structure, size: int) -> _Forward:
    made = engine.start_pass(flat[None])
    with torch.enable_grad(), seeded(0, flat.device):
        made.run_forward(engine.model, map_tensors(lambda one: _zeros(one, size, flat), inputs))
    return _Forward(made.calls, made.changed)


def _zeros(like: Tensor, size: int, flat: Tensor) -> Tensor:
    zeros = like.new_zeros(size, *like.shape[1:], device=flat.device)
    return zeros.to(flat.dtype) if like.is_floating_point() else zeros


def _first_shared(passes: list[_Forward], traits: Traits) -> Call | None:
    """The first call whose input has the same shape in batches of all sizes."""
    for first, *others in zip(*(one.calls for one in passes), strict=False):
        if all(other == first for other in others) and first not in traits.shared_rows:
            return first
    return None


def _draws_random(engine: GradientEngine, flat: Tensor, inputs: Structure) -> bool:
    """Whether torch's generator has moved on after a forward pass."""
    is_cuda = flat.device.type == "cuda"
    get = torch.cuda.get_rng_state if is_cuda else torch.get_rng_state
    with seeded(0, flat.device), torch.no_grad():
        before = get()
        engine.outputs(flat, map_tensors(lambda one: _zeros(one, _SIZES[0], flat), inputs))
        return not torch.equal(before, get())
