"""The ledger: what the mechanism released, step by step, so that the price is computed afterwards.

McMahan et al. 2018: a sampling event per step with the sums that were asked of that batch. Equal
steps in a row are counted, not listed; so a run's ledger is a few hundred bytes of JSON.
"""

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oso.errors import OsoError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

NEIGHBOURING = "add_or_remove_one"
SAMPLING = "poisson"


@dataclass(frozen=True)
class SumQuery:
    """One noisy sum: its name and its noise deviation divided by its sensitivity."""

    name: str
    noise_multiplier: float


@dataclass
class Ledger:
    """Steps of one run, each a Poisson-sampled batch and the noisy sums taken over it."""

    sampling_rate: float
    steps: list[tuple[tuple[SumQuery, ...], int]] = field(default_factory=list)  # (queries, count)

    def record(self, queries: tuple[SumQuery, ...]) -> None:
        """Write one step down. The mechanism calls this before it hands out the answers."""
        if self.steps and self.steps[-1][0] == queries:
            self.steps[-1] = (queries, self.steps[-1][1] + 1)
        else:
            self.steps.append((queries, 1))

    def check(self) -> None:
        """OsoError for values that no mechanism writes; an accountant may price them as nothing."""
        sound = 0 < self.sampling_rate <= 1 and all(
            count > 0 and queries and all(0 <= q.noise_multiplier < math.inf for q in queries)
            for queries, count in self.steps
        )
        if not sound:
            raise OsoError("ledger: a sampling rate, count or noise multiplier is out of range")

    def event(self) -> "DpEvent":
        """The whole run as a dp_accounting event."""
        import dp_accounting

        self.check()
        composed = dp_accounting.DpEventBuilder()
        for queries, count in self.steps:
            composed.compose(_step_event(self.sampling_rate, queries), count)
        return composed.build()

    def to_json(self) -> str:
        return json.dumps(
            {
                "neighbouring": NEIGHBOURING,
                "sampling": SAMPLING,
                "sampling_rate": self.sampling_rate,
                "steps": [
                    {
                        "count": count,
                        "queries": [
                            {"name": query.name, "noise_multiplier": query.noise_multiplier}
                            for query in queries
                        ],
                    }
                    for queries, count in self.steps
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read what `to_json` wrote; OsoError for another sampling scheme or a broken text."""
        try:
            stored = json.loads(text)
            scheme = (stored["neighbouring"], stored["sampling"])
            steps = [
                (tuple(SumQuery(**query) for query in step["queries"]), int(step["count"]))
                for step in stored["steps"]
            ]
            rate = float(stored["sampling_rate"])
        except (ValueError, KeyError, TypeError) as error:
            raise OsoError(f"ledger: not readable ({type(error).__name__}: {error})") from error
        if scheme != (NEIGHBOURING, SAMPLING):
            raise OsoError(f"ledger: {scheme} is not known; allowed is {(NEIGHBOURING, SAMPLING)}")
        ledger = cls(rate, steps)
        ledger.check()
        return ledger


def _step_event(sampling_rate: float, queries: tuple[SumQuery, ...]) -> "DpEvent":
    import dp_accounting

    if any(query.noise_multiplier == 0 for query in queries):
        return dp_accounting.NonPrivateDpEvent()
    sums: list[DpEvent] = [dp_accounting.GaussianDpEvent(q.noise_multiplier) for q in queries]
    return dp_accounting.PoissonSampledDpEvent(sampling_rate, dp_accounting.ComposedDpEvent(sums))
