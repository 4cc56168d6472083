"""The sums of gradients over a batch that a method may ask for: weights, sensitivities.

Each query is sum_i w(n_i) g_i (or, for the count, sum_i w(n_i)), where n_i is the 2-norm of example
i's gradient g_i, or of the part of it that the query's group of layers holds. The sensitivity is
the most that adding or removing one example can change the sum (in 2-norm): max over n of w(n) n
for vectors, of |w(n)| for the count. A query is asked for R runs at once: norms and weights are
[R, B], and thresholds have one entry per run; `runs` says which of those the R are.

A norm that is not finite gets weight zero: such an example contributes nothing, whatever it holds.
Thresholds are used no smaller than SMALLEST_THRESHOLD: far below it, float32 squares underflow, a
norm would be measured as zero and the example pass unclipped. And no larger than LARGEST_THRESHOLD:
infinite noise on an empty batch would look different from infinite noise on a full one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from oso_dp.errors import OsoError

if TYPE_CHECKING:  # declarations stay importable without torch's start-up time
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from oso_dp.privacy.groups import LayerGroup

SMALLEST_THRESHOLD, LARGEST_THRESHOLD = 1e-12, 1e30
_SMALLEST_WEIGHT = 2.0**-126  # smaller float32 numbers have few digits: rounded, they could exceed


@dataclass(frozen=True)
class Query(ABC):
    """A sum that weighs each example by its gradient's norm, and its noise.

    `noise_multiplier`: the noise's standard deviation in units of the sensitivity.
    """

    noise_multiplier: float
    kind: ClassVar[str]
    scalar: ClassVar[bool] = False
    needs_norms: ClassVar[bool] = True

    @property
    def group(self) -> LayerGroup | None:
        """The layers that it is about; None: the whole gradient as one vector."""
        return None

    @property
    def name(self) -> str:
        """What the ledger calls it, and the noise's stream: the kind, and the group if any."""
        return self.kind if self.group is None else f"{self.kind}/{self.group.name}"

    @property
    def key(self) -> Key:
        """What its answer is found by: its class, and the name of its group if it has one."""
        return type(self) if self.group is None else (type(self), self.group.name)

    @abstractmethod
    def sensitivity(self, runs: Runs) -> float | Tensor:
        """Of each of these runs, [R], or one number for all."""

    @abstractmethod
    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        """The weight of each example, [R, B], from the norms of their gradients, [R, B]."""


Key: TypeAlias = type[Query] | tuple[type[Query], str]
Runs: TypeAlias = slice | list[int]  # an index of the run axis
if TYPE_CHECKING:
    # What the mechanism gives: [R, P], [R, P_g] of a group of layers, [R] if scalar.
    Answers: TypeAlias = Mapping[Key, Tensor]


@dataclass(frozen=True)
class ThresholdQuery(Query):
    """Whatever depends on C."""

    threshold: Tensor  # C of all runs
    group: LayerGroup | None = None

    def _threshold(self, runs: Runs) -> Tensor:
        """[R, 1]"""
        return self.threshold[runs, None].clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)


class BoundedGradient(ThresholdQuery):
    """A sum to which nobody adds more than C."""

    def sensitivity(self, runs: Runs) -> Tensor:
        return self._threshold(runs)[:, 0]


class ClippingQuery(ThresholdQuery):
    """A sum made of two: of the gradients up to C, and of the unit vectors of those beyond it.

    Each example is in one of the two only. So several such queries of one threshold cost as much as
    a single one (`made_of_same_parts`).
    """

    @abstractmethod
    def combined(self, short: Tensor, units: Tensor, runs: Runs) -> Tensor:
        """The query's sums from those of the parts, each [R, ...]; or its weights from theirs."""

    def components(self, norms: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """Weights in the sum of gradients up to C and in that of unit vectors, each [R, B]."""
        threshold, finite = self._threshold(runs), norms.isfinite()
        short = (finite & (norms <= threshold)).to(norms.dtype)
        units = norms.reciprocal()
        # C / n must have all its digits, too.
        long = finite & (norms > threshold) & (threshold * units >= _SMALLEST_WEIGHT)
        return short, _usable(units, long)

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        return self.combined(*self.components(norms, runs), runs)


@dataclass(frozen=True)
class ClippedGradient(ClippingQuery, BoundedGradient):
    """The sum of gradients clipped to norm C, by min(1, C / n) (Galli et al., equation 4)."""

    kind = "clipped_gradient"

    def combined(self, short: Tensor, units: Tensor, runs: Runs) -> Tensor:
        return short.addcmul(self._threshold(runs), units)


@dataclass(frozen=True)
class AutomaticGradient(BoundedGradient):
    """The sum of gradients scaled by C / (n + gamma): AUTO-S (Bu et al. 2023).

    gamma (`stabiliser`) is above 0, so that n / (n + gamma) < 1: nobody adds more than C. It tends
    to 1 as n grows: no smaller sensitivity would hold. In float32, too: what is added to n cannot
    round to less than n, so that only the division can exceed, by one rounding, as in a clip.
    OsoError for a gamma that float32 could take for zero or infinity.
    """

    stabiliser: float = 0.01
    kind = "automatic_gradient"

    def __post_init__(self) -> None:
        if not 1e-6 <= self.stabiliser <= 1e6:  # below 0, the sensitivity would be unbounded
            raise OsoError(
                f"query {self.name!r}: stabiliser {self.stabiliser}: must be 1e-6 to 1e6"
            )

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        return _usable(self._threshold(runs) / self._length(norms), norms.isfinite())

    def _length(self, norms: Tensor) -> Tensor:
        """What each gradient is divided by; never less than its norm."""
        return norms + self.stabiliser


@dataclass(frozen=True)
class AdaptiveGradient(AutomaticGradient):
    """The sum of gradients scaled by C / (n + r / (n + r)): PSAC (Xia et al. 2023, Algorithm 1).

    r is the `stabiliser`. Unlike AUTO-S's, the weight of a vanishing gradient is C, not C / gamma:
    it is largest at n = sqrt(r) - r. The sensitivity is still C: r / (n + r) > 0, so that
    n / (n + r / (n + r)) < 1, and it tends to 1 as n grows.
    """

    stabiliser: float = 0.1
    kind = "adaptive_gradient"

    def _length(self, norms: Tensor) -> Tensor:
        return norms + self.stabiliser / (norms + self.stabiliser)


@dataclass(frozen=True)
class ClippedDirection(ClippingQuery):
    """The sum of unit gradients over the clipped examples: d(clipped sum)/dC (equation 11)."""

    kind = "clipped_direction"

    def sensitivity(self, runs: Runs) -> float:
        return 1.0

    def combined(self, short: Tensor, units: Tensor, runs: Runs) -> Tensor:
        return units


@dataclass(frozen=True)
class UnclippedCount(ThresholdQuery):
    """The number of unclipped examples, each counted as +1/2 or -1/2 (Andrew et al. 2021).

    Centring halves the sensitivity: with the count at 0 or 1 it would be 1.
    """

    kind = "unclipped_count"
    scalar = True

    def sensitivity(self, runs: Runs) -> float:
        return 0.5

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        votes = (norms <= self._threshold(runs)).to(norms.dtype) - 0.5
        return votes.masked_fill(~norms.isfinite(), 0.0)


def have_same_components(queries: Sequence[Query]) -> list[ClippingQuery]:
    """These queries, if all are made of the same two sums; else none."""
    clipping = [query for query in queries if isinstance(query, ClippingQuery)]
    same = all(query.threshold is clipping[0].threshold for query in clipping)
    return clipping if same and len(clipping) == len(queries) else []


def _usable(weights: Tensor, where: Tensor) -> Tensor:
    return weights.masked_fill(~where | (weights < _SMALLEST_WEIGHT), 0.0)


@dataclass(frozen=True)
class PlainGradient(Query):
    """The sum of gradients as they are: no clip, no noise, no privacy (NoDP)."""

    noise_multiplier: float = field(default=0.0, init=False)
    kind = "plain_gradient"
    needs_norms = False

    def sensitivity(self, runs: Runs) -> float:
        return math.inf

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        return norms.isfinite().to(norms.dtype)


QUERIES = (
    ClippedGradient,
    AutomaticGradient,
    AdaptiveGradient,
    ClippedDirection,
    UnclippedCount,
    PlainGradient,
)
