"""Noise is bounded, unlike a normal or a Laplace number: does delta cover that?

An outcome beyond the range of the noise on one of two neighbouring data sets reveals the record by
which they differ. That record moves a sum by at most 1/nu deviations of its noise.
"""

import math
from collections.abc import Iterable

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import GAUSSIAN, Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

# In deviations. The tail of a radius has 64 binary digits in system noise, 53 in torch's noise, as
# the tail of a Laplace number has.
SYSTEM_NORMAL, TORCH_NORMAL = (math.sqrt(2 * digits * math.log(2)) for digits in (64, 53))
_LARGEST_LAPLACE = 53 * math.log(2)
_NEGLIGIBLE = 0.01  # fraction of delta


def check_range(
    delta: float, noise_multiplier: float, sampling: PoissonSampling, steps: int, numbers: int
) -> None:
    """Check that delta covers the range of system noise in a training.

    Args:
        delta: of the guarantee.
        noise_multiplier: nu of a step.
        sampling: of the batches.
        steps: T.
        numbers: how many numbers a step releases.

    Raises:
        OsoError: if outcomes beyond it are more probable than a hundredth of delta.
    """
    step = SumQuery("step", noise_multiplier)
    outside = steps * numbers * 2 * _tail(SYSTEM_NORMAL)
    _check(delta, [(step, sampling.rate * steps)], SYSTEM_NORMAL, outside)


def check_moves(
    delta: float, moves: Iterable[tuple[SumQuery, float]], largest_normal: float
) -> None:
    """The same for sums, and how often a record is expected to move each.

    largest_normal: of the noise, in standard deviations.
    """
    _check(delta, list(moves), largest_normal, 0.0)


def check_ledgers(delta: float, ledgers: Iterable[Ledger]) -> None:
    """The same for system noise of trainings that were accounted at another delta."""
    moves = [
        (query, ledger.sampling.rate * count)
        for ledger in ledgers
        for queries, count in ledger.steps
        for query in queries
    ]
    if moves:
        check_moves(delta, moves, SYSTEM_NORMAL)


def _check(
    delta: float, moves: list[tuple[SumQuery, float]], largest: float, outside: float
) -> None:
    probability = outside + sum(times * _beyond(query, largest) for query, times in moves)
    if probability > _NEGLIGIBLE * delta:
        least = min(query.noise_multiplier for query, _ in moves)
        raise OsoError(
            f"noise multiplier {least:.3g}: noise is bounded (a normal number by {largest:.1f} "
            f"standard deviations), and may reveal a record, with probability {probability:.1e}; "
            f"must be <= {_NEGLIGIBLE:g} delta, {_NEGLIGIBLE * delta:.1e}: use a smaller epsilon "
            "or a larger delta"
        )


def _beyond(query: SumQuery, largest_normal: float) -> float:
    """The probability that a sum that was moved as far as possible is beyond the other's range."""
    moved = 1 / query.noise_multiplier
    if query.distribution == GAUSSIAN:
        return _tail(largest_normal - moved)
    return math.exp(min(0.0, moved - _LARGEST_LAPLACE)) / 2


def _tail(value: float) -> float:
    """The probability that a normal number is larger."""
    return math.erfc(value / math.sqrt(2)) / 2
