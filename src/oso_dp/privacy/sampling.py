"""Poisson sampling of batches. One object draws the batch, describes it to accountants and names
the neighbouring relation under which that description holds, so that the three cannot disagree.

Each record is in a batch with probability q = B/n, independently of the others, and neighbouring
data sets differ by one record added or removed (Galli et al. 2024, "Privacy Analysis"). A record is
an example, or a user with all of their examples. Batches of fixed size and shuffled epochs need
another accounting and are not supported.

A batch is drawn as a binomial size and a uniformly random subset of that size, which has the
distribution of n independent choices with probability q, and costs the size of the subset and two
random bits per record, instead of a uniform number per record. It is exact, without logarithms or
rounded sums: q is a float, an integer over a power of two, so the draws have exactly the stated
probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oso_dp.errors import OsoError
from oso_dp.privacy.promise import EXAMPLE, UNITS, Unit
from oso_dp.value_checks import check_number

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.privacy_accountant import NeighboringRelation


Words = Callable[[int], np.ndarray]  # count -> fresh random 64-bit words, uint64 [count]


def draw_binomial(examples: int, rate: float, words: Words) -> int:
    """How many of `examples` independent uniform numbers in [0, 1) are below `rate`.

    All are compared with the rate one binary digit at a time. The number of ones in a digit is the
    number of ones in as many random bits. A number whose digit differs from the rate's is decided,
    so that about half remain for the next digit.
    """
    below, undecided = 0, examples
    while undecided and rate:
        rate *= 2  # exact, as is the subtraction below
        ones = _ones(undecided, words)
        if rate >= 1:  # the rate's digit is 1: a 0 is below it
            rate -= 1
            below, undecided = below + undecided - ones, ones
        else:
            undecided -= ones
    return below  # a number with all of the rate's digits is not below it


def draw_subset(examples: int, size: int, words: Words) -> np.ndarray:
    """A uniformly random subset of range(examples), ascending, int64 [size].

    Integers are drawn until `size` distinct ones were. This treats all integers alike, so all
    subsets of this size are equally probable.
    """
    if 2 * size > examples:  # draw the complement, which is smaller
        selected = np.ones(examples, dtype=bool)
        selected[draw_subset(examples, examples - size, words)] = False
        return np.flatnonzero(selected)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        chosen = np.concatenate([chosen, uniform_below(examples, size - len(chosen), words)])
        chosen.sort()
        chosen = chosen[np.concatenate([[True], chosen[1:] != chosen[:-1]])]
    return chosen


def uniform_below(limit: int, count: int, words: Words) -> np.ndarray:
    """Uniform integers in [0, limit), int64 [count], by rejection."""
    bits = max(1, (limit - 1).bit_length())
    accepted = np.empty(0, dtype=np.int64)
    while len(accepted) < count:
        drawn = (words(count - len(accepted)) >> np.uint64(64 - bits)).astype(np.int64)
        accepted = np.concatenate([accepted, drawn[drawn < limit]])
    return accepted


def _ones(bits: int, words: Words) -> int:
    """The number of ones among `bits` random bits."""
    drawn = words(-(-bits // 64))
    ones = (int(drawn[-1]) >> (-bits % 64)).bit_count()
    # numpy.bitwise_count came with numpy 2
    return ones + int(np.count_nonzero(np.unpackbits(drawn[:-1].view(np.uint8))))


@dataclass(frozen=True)
class PoissonSampling:
    """Poisson sampling of records at rate q. Raises OsoError unless 0 < q <= 1.

    `unit`: what a record is. Two units are never added up.
    """

    rate: float
    unit: Unit = EXAMPLE
    name: ClassVar[str] = "poisson"
    neighbouring: ClassVar[str] = "add_or_remove_one"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise OsoError(f"sampling_rate: {self.rate:g}; must be > 0 and <= 1")

    @classmethod
    def of(cls, batch_size: float, records: float, unit: Unit = EXAMPLE) -> PoissonSampling:
        """At the rate q = B/n, for an expected batch size B of n records."""
        return cls(batch_size / records, unit)

    def draw(self, records: int, words: Words) -> np.ndarray:
        """Indices of a batch of `records` records, ascending, int64 [B]."""
        return draw_subset(records, draw_binomial(records, self.rate, words), words)

    def event(self, sums: DpEvent) -> DpEvent:
        """The sums over one such batch, as a dp_accounting event."""
        from oso_dp.privacy.dp_events import dp_event

        return dp_event.PoissonSampledDpEvent(self.rate, sums)

    @property
    def relation(self) -> NeighboringRelation:
        """The neighbouring relation that an accountant of such events must use."""
        from oso_dp.privacy.dp_events import privacy_accountant

        return privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE

    def to_json(self) -> dict[str, Any]:
        # Ledgers that are older than users state no unit.
        unit = {} if self.unit == EXAMPLE else {"unit": self.unit.name}
        return {
            "neighbouring": self.neighbouring,
            "sampling": self.name,
            "sampling_rate": self.rate,
            **unit,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PoissonSampling:
        """The inverse of `to_json`; OsoError for any other combination of scheme and relation."""
        scheme = (stored["sampling"], stored["neighbouring"])
        if scheme != (cls.name, cls.neighbouring):
            raise OsoError(
                f"ledger: sampling {scheme[0]!r} with neighbouring {scheme[1]!r}; must be "
                f"{cls.name!r} with {cls.neighbouring!r}"
            )
        rate = stored["sampling_rate"]
        check_number("ledger: sampling_rate", rate)
        unit = stored.get("unit", EXAMPLE.name)
        if unit not in UNITS:
            raise OsoError(f"ledger: unit {unit!r}; must be one of {', '.join(UNITS)}")
        return cls(rate, UNITS[unit])


def count_steps(epochs: float, records: float, batch_size: float) -> int:
    """T = ceil(epochs n / B): each record is in `epochs` batches in expectation."""
    return math.ceil(epochs * records / batch_size)
