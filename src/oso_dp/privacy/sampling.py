"""Poisson sampling of batches. One object draws the batch, describes it to accountants and names
the neighbouring relation under which that description holds, so that the three cannot disagree.

Each example is in a batch with probability q = B/n, independently of the others, and neighbouring
data sets differ by one example added or removed (Galli et al. 2024, "Privacy Analysis"). Batches of
fixed size and shuffled epochs need another accounting and are not supported.

A batch is drawn as a binomial size and a uniformly random subset of that size, which has the same
distribution (`oso_dp.privacy.sampling`) at a cost proportional to the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import Words, draw_binomial, draw_subset

if TYPE_CHECKING:
    import numpy as np
    from dp_accounting import DpEvent
    from dp_accounting.privacy_accountant import NeighboringRelation


@dataclass(frozen=True)
class PoissonSampling:
    """Poisson sampling at rate q. Raises OsoError unless 0 < q <= 1."""

    rate: float
    name: ClassVar[str] = "poisson"
    neighbouring: ClassVar[str] = "add_or_remove_one"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise OsoError(f"sampling_rate: {self.rate:g}; must be > 0 and <= 1")

    @classmethod
    def of(cls, batch_size: float, examples: float) -> PoissonSampling:
        """At the rate q = B/n, for an expected batch size B of n examples."""
        return cls(batch_size / examples)

    def draw(self, examples: int, words: Words) -> np.ndarray:
        """Indices of a batch of `examples` examples, ascending, int64 [B]."""
        return draw_subset(examples, draw_binomial(examples, self.rate, words), words)

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
        return {
            "neighbouring": self.neighbouring,
            "sampling": self.name,
            "sampling_rate": self.rate,
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
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise OsoError(f"ledger: sampling_rate {rate!r}; must be a number")
        return cls(rate)


def count_steps(epochs: float, examples: float, batch_size: float) -> int:
    """T = ceil(epochs n / B): each example is in `epochs` batches in expectation."""
    return math.ceil(epochs * examples / batch_size)
