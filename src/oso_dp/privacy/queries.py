"""Queries: the clipped or weighted gradient sums that a method may use, with their sensitivities.

Each query is sum_i w(n_i) g_i (or, for the count, sum_i w(n_i)), where n_i is the 2-norm of example
i's gradient g_i, restricted to the query's layer group if it has one. The sensitivity is the
largest change of the sum, in 2-norm, by adding or removing one example: max over n of w(n) n for
vectors, of |w(n)| for the count. A query is for R runs at once: norms and weights are [R, B], and
thresholds have one entry per run; `runs` selects the R runs among those.

An example whose norm is not finite gets weight zero, whatever its gradient is. Thresholds are
clamped from below to SMALLEST_THRESHOLD: far below it float32 squares underflow, a norm would be
measured as zero and the example not clipped. They are clamped from above to LARGEST_THRESHOLD:
infinite noise would distinguish an empty batch from a non-empty one. So would a weight C / n times
a large factor of a small gradient, if float32 could not represent it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from oso_dp.errors import OsoError

if TYPE_CHECKING:  # importing torch is slow, and planning a study does not need it
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from oso_dp.privacy.noise_composition import LayerGroup

SMALLEST_THRESHOLD, LARGEST_THRESHOLD = 1e-12, 1e18
_SMALLEST_WEIGHT = 2.0**-126  # subnormal float32 weights round coarsely and could exceed the bound
_LARGEST_WEIGHT = 1e20  # a larger one times a large factor of a small gradient may be infinite


@dataclass(frozen=True)
class Query(ABC):
    """A noisy sum over a batch that weights each example by its gradient norm.

    Attributes:
        noise_multiplier: standard deviation of the noise over the sensitivity; 0 for no noise.
        kind: the name of the class in ledgers and streams.
        scalar: whether it sums weights only, not gradients.
        needs_norms: whether the weights depend on the norms.
    """

    noise_multiplier: float
    kind: ClassVar[str]
    scalar: ClassVar[bool] = False
    needs_norms: ClassVar[bool] = True

    @property
    def group(self) -> LayerGroup | None:
        """The layer group; None for the complete gradient as one vector."""
        return None

    @property
    def name(self) -> str:
        """Its name in the ledger and in the noise's stream: the kind, and the group if any."""
        return self.kind if self.group is None else f"{self.kind}/{self.group.name}"

    @property
    def key(self) -> Key:
        """The key of its answer: its class, with the name of its group if it has one."""
        return type(self) if self.group is None else (type(self), self.group.name)

    @abstractmethod
    def sensitivity(self, runs: Runs) -> float | Tensor:
        """The sensitivity of each of these runs, [R], or one number for all."""

    @abstractmethod
    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        """The weight of each example, [R, B], from the norms of their gradients, [R, B]."""


Key: TypeAlias = type[Query] | tuple[type[Query], str]
Runs: TypeAlias = slice | list[int]  # an index of the run axis
if TYPE_CHECKING:
    # The mechanism's answers: [R, P], [R, P_g] of a layer group, [R] if scalar.
    Answers: TypeAlias = Mapping[Key, Tensor]


@dataclass(frozen=True)
class ThresholdQuery(Query):
    """A query that depends on the clipping threshold C."""

    threshold: Tensor  # C of all runs
    group: LayerGroup | None = None

    def __post_init__(self) -> None:
        if self.threshold.dtype.itemsize < 4:  # its products would round the noise to eight bits
            object.__setattr__(self, "threshold", self.threshold.float())

    def _threshold(self, runs: Runs) -> Tensor:
        """[R, 1]"""
        return self.threshold[runs, None].clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)


class BoundedGradient(ThresholdQuery):
    """A sum to which each example contributes at most C."""

    def sensitivity(self, runs: Runs) -> Tensor:
        return self._threshold(runs)[:, 0]


class ClippingQuery(ThresholdQuery):
    """A combination of two components: the sum of unclipped gradients (norm at most C), and the sum
    of the unit vectors of clipped ones.

    Each example is in one component only. So several such queries of one threshold take as long to
    compute as one (`have_same_components`).
    """

    @abstractmethod
    def combined(self, short: Tensor, units: Tensor, runs: Runs) -> Tensor:
        """The query's sums from the components' sums, [R, ...] each, or its weights from theirs."""

    def components(self, norms: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """Weights in the sums of unclipped gradients and of unit vectors, each [R, B]."""
        threshold, finite = self._threshold(runs), norms.isfinite()
        short = (finite & (norms <= threshold)).to(norms.dtype)
        units = norms.reciprocal()
        # C / n must not be subnormal either.
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

    gamma (`stabiliser`) is > 0, so that n / (n + gamma) < 1 and an example contributes at most C;
    it tends to 1 as n grows, so the sensitivity is C. This also holds in float32: n + gamma does
    not round to less than n, so only the division can exceed the bound, by one rounding, as in
    clipping. Raises OsoError for a gamma that float32 could round to zero or infinity.
    """

    stabiliser: float = 0.01
    kind = "automatic_gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-6 <= self.stabiliser <= 1e6:  # below 0, the sensitivity would be unbounded
            raise OsoError(
                f"query {self.name!r}: stabiliser {self.stabiliser}; must be >= 1e-6 and <= 1e6"
            )

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        weights = self._threshold(runs) / self._length(norms)
        return _usable(weights, norms.isfinite() & (weights <= _LARGEST_WEIGHT))

    def _length(self, norms: Tensor) -> Tensor:
        """The divisor of each gradient; never less than its norm."""
        return norms + self.stabiliser


@dataclass(frozen=True)
class AdaptiveGradient(AutomaticGradient):
    """The sum of gradients scaled by C / (n + r / (n + r)): PSAC (Xia et al. 2023, Algorithm 1).

    r is the `stabiliser`. Unlike AUTO-S's, the weight of a vanishing gradient is C, not C / gamma;
    the weight is largest at n = sqrt(r) - r. The sensitivity is still C: r / (n + r) > 0, so that
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
    """The number of unclipped examples, counted as +1/2 or -1/2 each (Andrew et al. 2021).

    Centring halves the sensitivity: counted as 1 or 0 it would be 1.
    """

    kind = "unclipped_count"
    scalar = True

    def sensitivity(self, runs: Runs) -> float:
        return 0.5

    def weights(self, norms: Tensor, runs: Runs) -> Tensor:
        votes = (norms <= self._threshold(runs)).to(norms.dtype) - 0.5
        return votes.masked_fill(~norms.isfinite(), 0.0)


def have_same_components(queries: Sequence[Query]) -> list[ClippingQuery]:
    """These queries if all have the same two components; else an empty list."""
    clipping = [query for query in queries if isinstance(query, ClippingQuery)]
    same = all(query.threshold is clipping[0].threshold for query in clipping)
    return clipping if same and len(clipping) == len(queries) else []


def _usable(weights: Tensor, where: Tensor) -> Tensor:
    return weights.masked_fill(~where | (weights < _SMALLEST_WEIGHT), 0.0)


@dataclass(frozen=True)
class PlainGradient(Query):
    """The sum of gradients without clipping, noise and privacy (NoDP)."""

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
