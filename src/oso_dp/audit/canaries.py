"""Data with canaries: examples whose gradient, and so whose trace in every answer, is known.

The model is linear and has no bias. Canary j has one input that nobody else has, so its gradient
lies in that input's column, orthogonal to all others. With two classes and class 0 as the target,
the error is a (-1, 1) with some a in (0, 1), whatever the parameters are: the direction never
changes. The input is so large that the gradient is always clipped. So the canary adds exactly C to
the clipped gradient along its direction, 1 to the clipped direction, and -1/2 to the unclipped
count: the sensitivities, the most that an example can do.

A canary that is left out stays as a row of NaN. The mechanism lets a gradient that is not finite
contribute nothing to any sum, so this is the data set without it, at the same n and q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oso_dp.data.arrays import Arrays
from oso_dp.models.linear import INPUTS

THRESHOLD = 10.0  # C at the start; above 1, so that noise that is not scaled with it is too small
_SIZE = 1000.0  # a canary's input; its gradient has norm 707 at weights of zero
_ORDINARY = 96  # ordinary examples, and inputs for them alone


class _ArraysWithGaps(Arrays):
    """Arrays in which an absent example is a row of NaN."""

    def __post_init__(self) -> None:
        pass  # all that `Arrays` would refuse here are the gaps


@dataclass(frozen=True, eq=False)
class Canaries:
    """A data set with m canaries: their inputs, and who of them takes part, [m]."""

    arrays: Arrays
    columns: slice
    present: npt.NDArray[np.bool_]


def many_canaries(seed: int) -> Canaries:
    """4,000 canaries, each present with probability 1/2, among 96 ordinary examples."""
    rng = np.random.default_rng(seed)
    canaries = np.arange(_ORDINARY, INPUTS)
    present = rng.random(len(canaries)) < 0.5
    inputs = np.zeros((INPUTS, INPUTS), dtype=np.float32)
    # Gradient norms around 10: some ordinary examples are clipped, some are not.
    inputs[:_ORDINARY, :_ORDINARY] = 1.4 * rng.standard_normal((_ORDINARY, _ORDINARY))
    inputs[canaries, canaries] = _SIZE
    inputs[canaries[~present]] = np.nan
    targets = np.zeros(INPUTS, dtype=np.int64)
    targets[:_ORDINARY] = rng.integers(2, size=_ORDINARY)
    return Canaries(_with_a_test_set(inputs, targets), slice(_ORDINARY, INPUTS), present)


def lone_canary(present: bool, examples: int) -> Canaries:
    """One canary and nobody else (the other rows are gaps): neighbours as far apart as any."""
    inputs = np.full((examples, INPUTS), np.nan, dtype=np.float32)
    if present:
        inputs[0] = 0
        inputs[0, 0] = _SIZE
    targets = np.zeros(examples, dtype=np.int64)
    return Canaries(_with_a_test_set(inputs, targets), slice(0, 1), np.array([present]))


def _with_a_test_set(inputs: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> Arrays:
    """Training wants one; nobody looks at it."""
    return _ArraysWithGaps(
        inputs, targets, np.zeros((2, INPUTS), dtype=np.float32), np.zeros(2, dtype=np.int64)
    )
