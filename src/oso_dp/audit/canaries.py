"""Data with canaries: examples whose contribution to every sum is known.

The model is linear without bias. Canary j has a nonzero input that no other example has, so its
gradient lies in that input's column, orthogonal to all others. With two classes and target 0, the
error is a (-1, 1) with a in (0, 1) for all parameters: the direction is constant. The input is so
large that the gradient is always clipped. So the canary adds exactly C to the clipped gradient
along its direction, 1 to the clipped direction, and -1/2 to the unclipped count: the sensitivities.

An absent canary is a row of NaN. A gradient that is not finite contributes nothing to any sum, so
this equals the data set without the canary, at the same n and q. At user level a canary is a user
with several equal rows, whose update has the same direction and is always clipped, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from oso_dp.data.arrays import Arrays
from oso_dp.models.networks import INPUTS

THRESHOLD = 10.0  # C_0; above 1, so that noise that is not scaled by C is too small
_SIZE = 1000.0  # a canary's input; its gradient has norm 707 at zero weights
_ORDINARY = 96  # number of ordinary examples, and of inputs for them only


class _ArraysWithGaps(Arrays):
    """Arrays in which an absent example is a row of NaN."""

    def __post_init__(self) -> None:
        pass  # `Arrays` would reject the NaN


@dataclass(frozen=True, eq=False)
class Canaries:
    """A data set with m canaries: their input columns, and which are present, bool [m]."""

    arrays: Arrays
    columns: slice
    present: npt.NDArray[np.bool_]


def many_canaries(seed: int) -> Canaries:
    """4,000 canaries, each present with probability 1/2, among 96 ordinary examples."""
    rng = np.random.default_rng(seed)
    canaries = np.arange(_ORDINARY, INPUTS)
    present = rng.random(len(canaries)) < 0.5
    inputs = np.zeros((INPUTS, INPUTS), dtype=np.float32)
    # Gradient norms are around 10: some ordinary examples are clipped, some are not.
    inputs[:_ORDINARY, :_ORDINARY] = 1.4 * rng.standard_normal((_ORDINARY, _ORDINARY))
    inputs[canaries, canaries] = _SIZE
    inputs[canaries[~present]] = np.nan
    targets = np.zeros(INPUTS, dtype=np.int64)
    targets[:_ORDINARY] = rng.integers(2, size=_ORDINARY)
    return Canaries(_with_a_test_set(inputs, targets), slice(_ORDINARY, INPUTS), present)


def lone_canary(present: bool, examples: int) -> Canaries:
    """One canary and no other examples (the other rows are NaN): worst-case neighbours."""
    inputs = np.full((examples, INPUTS), np.nan, dtype=np.float32)
    if present:
        inputs[0] = 0
        inputs[0, 0] = _SIZE
    targets = np.zeros(examples, dtype=np.int64)
    return Canaries(_with_a_test_set(inputs, targets), slice(0, 1), np.array([present]))


def of_users(arrays: Arrays, rows: int) -> Arrays:
    """Each example as a user with so many equal rows."""
    users = np.repeat(np.arange(len(arrays.train_targets)), rows)
    return replace(
        arrays,
        train_inputs=arrays.train_inputs[users],
        train_targets=arrays.train_targets[users],
        train_users=users,
    )


def _with_a_test_set(inputs: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> Arrays:
    """Add a test set, which training needs but the audit does not use."""
    return _ArraysWithGaps(
        inputs, targets, np.zeros((2, INPUTS), dtype=np.float32), np.zeros(2, dtype=np.int64)
    )
