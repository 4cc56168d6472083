"""What a model does in its forward pass, found on made-up examples before training.

`find_traits` looks for rows that all examples share, outputs that are changed in place, and random
numbers. `SameForAllExamples` makes a model draw the same random numbers for each example, so that
the checks before training can compare an example in a batch with the same one alone.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oso_dp.errors import OsoError
from oso_dp.gradients.engine import GradientEngine, seeded
from oso_dp.gradients.forward_backward import Call, Traits
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


class SameForAllExamples(TorchDispatchMode):
    """Inside, all examples are given the same random numbers, whatever the size of a batch.

    Examples are the first dimension. What is drawn depends on the number of the draw alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draws = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self._draws += 1
        name = func.name().split("::")[1].split(".")[0]
        device = next((one.device for one in args if isinstance(one, Tensor)), torch.device("cpu"))
        with seeded(self._draws, device):
            if name == "native_dropout":
                return self._dropout(func, *args, **kwargs)
            if name in _IN_PLACE:
                first, *others = args
                return first.copy_(func(first[:1].clone(), *map(_first_row, others), **kwargs))
            if name in _LIKE:
                first, *others = args
                drawn = func(first[:1], *map(_first_row, others), **kwargs)
                return drawn.expand_as(first).clone()
            if name in _OF_SIZE:
                place = next(i for i, one in enumerate(args) if isinstance(one, list | tuple))
                size = args[place]
                few = (
                    *args[:place],
                    [min(1, size[0]), *size[1:]] if size else [],
                    *args[place + 1 :],
                )
                return func(*few, **kwargs).expand(size).clone()
        raise OsoError(
            f"model: draws random numbers by torch's {name}, which cannot be checked; use rand, "
            "randn or a dropout layer"
        )

    def _dropout(self, func: Any, values: Tensor, p: float, train: bool | None) -> Any:
        _, kept = func(torch.ones_like(values[:1]), p, train)
        kept = kept.expand_as(values).clone()
        scale = 1 / (1 - p) if train is not False and p < 1 else 1.0
        return values * kept * scale, kept


_IN_PLACE = {
    *("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "cauchy_", "geometric_"),
    "log_normal_",
}
_LIKE = {"bernoulli", "rand_like", "randn_like", "randint_like", "poisson", "normal"}
_OF_SIZE = {"rand", "randn", "randint"}


def _first_row(value: Any) -> Any:
    return value[:1] if isinstance(value, Tensor) and value.dim() else value
