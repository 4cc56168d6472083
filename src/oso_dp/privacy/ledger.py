"""The ledger: what the mechanism released, step by step; epsilon is computed from it afterwards.

McMahan et al. 2018, section 5: a sampling event per step, with the noisy sums of that batch. Equal
steps are counted, not listed, since epsilon does not depend on their order; so a run's ledger is a
few hundred bytes of JSON. Their ledger has each sum's bound S and standard deviation sigma; here it
is their ratio, which suffices for accounting and is constant while S changes.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oso_dp.defaults import MAX_COUNT
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.privacy.noise_composition import (
    MIN_NOISE_MULTIPLIER,
    check_noise_multiplier,
    combined_noise_multiplier,
)
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.value_checks import check_integer, check_number

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Of a query's noise. PURE: any mechanism whose epsilon at delta = 0 is 1 / noise multiplier.
GAUSSIAN, LAPLACE, PURE = DISTRIBUTIONS = ("gaussian", "laplace", "pure")


@dataclass(frozen=True)
class SumQuery:
    """One noisy sum: its name, and the deviation of its noise over its sensitivity.

    The deviation is the standard deviation of Gaussian noise, and the scale of Laplace noise.
    """

    name: str
    noise_multiplier: float
    distribution: str = GAUSSIAN

    def to_json(self) -> dict[str, Any]:
        fields = vars(self).copy()
        if self.distribution == GAUSSIAN:  # as ledgers were written before
            del fields["distribution"]
        return fields


@dataclass
class Ledger:
    """The steps of one run: each is a sampled batch and the noisy sums over it, with a count.

    failure: the probability that what was released is not bounded by the steps, which delta covers.
    """

    sampling: PoissonSampling
    steps: list[tuple[tuple[SumQuery, ...], int]] = field(default_factory=list)  # (queries, count)
    failure: float = 0.0

    def record(self, queries: tuple[SumQuery, ...]) -> None:
        """Add one step. The mechanism calls this before it returns the answers."""
        for index, (recorded, count) in enumerate(self.steps):
            if recorded == queries:
                self.steps[index] = (queries, count + 1)
                return
        self.steps.append((queries, 1))

    @property
    def step_count(self) -> int:
        return sum(count for _, count in self.steps)

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise of each step is Gaussian, as in training."""
        return self.failure == 0 and all(
            query.distribution == GAUSSIAN for queries, _ in self.steps for query in queries
        )

    def check(self) -> None:
        """OsoError for values that no mechanism records, for which an accountant may be wrong."""
        check_number("ledger: failure", self.failure, ge=0, lt=1)
        for queries, count in self.steps:
            check_integer("ledger: count", count, ge=1, le=MAX_COUNT)
            if not queries or len({query.name for query in queries}) != len(queries):
                raise OsoError("ledger: a step must have queries with distinct names")
            for query in queries:
                nu = query.noise_multiplier
                check_noise_multiplier("ledger: noise_multiplier", nu)
                if 0 < nu < MIN_NOISE_MULTIPLIER:
                    raise OsoError(
                        f"ledger: noise_multiplier: {nu!r}; must be 0, or >= "
                        f"{MIN_NOISE_MULTIPLIER:g}"
                    )
                if query.distribution not in DISTRIBUTIONS:
                    raise OsoError(
                        f"ledger: distribution {query.distribution!r}; must be one of "
                        f"{', '.join(DISTRIBUTIONS)}"
                    )
                if query.distribution != GAUSSIAN and self.sampling.rate < 1:
                    raise OsoError(
                        f"ledger: {query.distribution} noise on sampled batches; its amplification "
                        "is not supported"
                    )

    def releases(self) -> list[tuple[float, int]]:
        """Each distinct step as one Gaussian sum (McMahan et al., equation 1): (nu, count).

        OsoError for a ledger with other noise.
        """
        self.check()
        if not self.is_gaussian:
            raise OsoError("ledger: has noise that is not Gaussian")
        return [
            (combined_noise_multiplier([query.noise_multiplier for query in queries]), count)
            for queries, count in self.steps
        ]

    def event(self) -> "DpEvent":
        """The complete run as a dp_accounting event."""
        counted: Counter[tuple[PoissonSampling, float]] = Counter()
        for nu, count in self.releases():  # nu may appear more than once
            counted[self.sampling, nu] += count
        return composed_event(counted)

    def to_json(self) -> str:
        steps = [
            {"count": count, "queries": [query.to_json() for query in queries]}
            for queries, count in self.steps
        ]
        failure = {"failure": self.failure} if self.failure else {}
        return json.dumps({**self.sampling.to_json(), "steps": steps, **failure})

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """The inverse of `to_json`; OsoError for another sampling scheme or an invalid text."""
        try:
            stored = parse_json(text, object_pairs_hook=_check_unique_keys)
            sampling = PoissonSampling.from_json(stored)
            steps = [
                (tuple(SumQuery(**query) for query in step["queries"]), step["count"])
                for step in stored["steps"]
            ]
            ledger = cls(sampling, steps, stored.get("failure", 0.0))
            ledger.check()
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise OsoError(f"ledger: not readable ({type(error).__name__}: {error})") from error
        return ledger


def _check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A repeated key would hide the first value."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key appears twice")
    return content


def composed_event(releases: Mapping[tuple[PoissonSampling, float], int]) -> "DpEvent":
    """One dp_accounting event of step counts by (sampling, nu of all sums of the step)."""
    from oso_dp.privacy.dp_events import dp_event

    events = []
    for (sampling, nu), count in releases.items():
        step = sampling.event(dp_event.GaussianDpEvent(nu)) if nu else dp_event.NonPrivateDpEvent()
        events.append(dp_event.SelfComposedDpEvent(step, count))
    return dp_event.ComposedDpEvent(events)
