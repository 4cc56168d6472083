"""The ledger: what the mechanism released, step by step, so that the price is computed afterwards.

McMahan et al. 2018, section 5: a sampling event per step with the sums that were asked of that
batch. Equal steps in a row are counted, not listed; so a run's ledger is a few hundred bytes of
JSON. The paper's ledger holds each sum's bound S and deviation sigma; here it is their ratio, which
is what accounting needs, and which stays the same while S moves.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oso.errors import OsoError
from oso.privacy.joint import combined_noise_multiplier
from oso.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class SumQuery:
    """One noisy sum: its name and its noise deviation divided by its sensitivity."""

    name: str
    noise_multiplier: float


@dataclass
class Ledger:
    """Steps of one run, each a sampled batch and the noisy sums taken over it."""

    sampling: PoissonSampling
    steps: list[tuple[tuple[SumQuery, ...], int]] = field(default_factory=list)  # (queries, count)

    def record(self, queries: tuple[SumQuery, ...]) -> None:
        """Write one step down. The mechanism calls this before it hands out the answers."""
        if self.steps and self.steps[-1][0] == queries:
            self.steps[-1] = (queries, self.steps[-1][1] + 1)
        else:
            self.steps.append((queries, 1))

    @property
    def step_count(self) -> int:
        return sum(count for _, count in self.steps)

    def check(self) -> None:
        """OsoError for values that no mechanism writes; an accountant may price them as nothing."""
        sound = all(
            count > 0 and queries and all(0 <= q.noise_multiplier < math.inf for q in queries)
            for queries, count in self.steps
        )
        if not sound:
            raise OsoError("ledger: a count or noise multiplier is out of range")

    def releases(self) -> list[tuple[float, int]]:
        """Each kind of step as one Gaussian sum (McMahan et al., equation 1): (nu, count)."""
        self.check()
        return [
            (combined_noise_multiplier([query.noise_multiplier for query in queries]), count)
            for queries, count in self.steps
        ]

    def event(self) -> "DpEvent":
        """The whole run as a dp_accounting event."""
        return composed_event({(self.sampling, nu): count for nu, count in self.releases()})

    def to_json(self) -> str:
        steps = [
            {"count": count, "queries": [vars(query) for query in queries]}
            for queries, count in self.steps
        ]
        return json.dumps({**self.sampling.to_json(), "steps": steps})

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read what `to_json` wrote; OsoError for another sampling scheme or a broken text."""
        try:
            stored = json.loads(text)
            sampling = PoissonSampling.from_json(stored)
            steps = [
                (tuple(SumQuery(**query) for query in step["queries"]), int(step["count"]))
                for step in stored["steps"]
            ]
            ledger = cls(sampling, steps)
            ledger.check()
        except (ValueError, KeyError, TypeError) as error:
            raise OsoError(f"ledger: not readable ({type(error).__name__}: {error})") from error
        return ledger


def composed_event(releases: Mapping[tuple[PoissonSampling, float], int]) -> "DpEvent":
    """Steps by (sampling, nu of all the step's sums together) and their number, as one event."""
    from oso.privacy.lean import dp_event

    events = []
    for (sampling, nu), count in releases.items():
        step = sampling.event(dp_event.GaussianDpEvent(nu)) if nu else dp_event.NonPrivateDpEvent()
        events.append(dp_event.SelfComposedDpEvent(step, count))
    return dp_event.ComposedDpEvent(events)
