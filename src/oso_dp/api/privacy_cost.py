"""The ledgers that a model's epsilon covers: its training, and the hyperparameter search (by
composition or random stopping) that chose it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    compute_random_stopping_epsilon,
)
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.value_checks import check_integer

# Under a Poisson distribution the number of trainings may be 0.
STOPPING_DISTRIBUTIONS = [name for name in STOPPING_ETA if name != "poisson"]


@dataclass(frozen=True)
class RandomStopping:
    """A search with a random number of trainings, of which only the best is released.

    Attributes:
        mean_runs: the expected number of trainings.
        distribution: of their number; one of STOPPING_DISTRIBUTIONS.
        candidate: the most that any training of the search may release.
    """

    mean_runs: int
    distribution: str
    candidate: Ledger

    def epsilon(self, candidate: Ledger, delta: float) -> float:
        """Epsilon of the search if each training releases at most `candidate`."""
        eta = STOPPING_ETA[self.distribution]
        return compute_random_stopping_epsilon(candidate, self.mean_runs, eta, delta)


@dataclass(frozen=True)
class PrivacyCost:
    """All ledgers that a model's epsilon covers.

    Attributes:
        ledger: of the model's training.
        other_trainings: of the other trainings of its search, which are also released (search by
            composition); a diverged one with all of its planned steps.
        stopping: set for a search by random stopping.
        scores: of the noisy scores on the validation examples; under random stopping, of one
            candidate.
        unused_steps: planned steps that were not taken, because the training diverged, or it or its
            search was stopped. They count: the step at which a training ends may depend on the
            data, and epsilon of a data-dependent number of steps is no guarantee.
    """

    ledger: Ledger
    other_trainings: tuple[Ledger, ...] = ()
    stopping: RandomStopping | None = None
    scores: Ledger | None = None
    unused_steps: Ledger | None = None

    def ledgers(self) -> list[Ledger]:
        """Of the steps that were taken, of all released trainings: spent when one is resumed."""
        return [self.ledger, *self.other_trainings]

    def charged_ledgers(self) -> list[Ledger]:
        """What `epsilon` counts, to compose it with other results on the same data.

        OsoError for a search by random stopping, whose cost is no composition of ledgers.
        """
        if self.stopping is not None:
            raise OsoError(
                "charged_ledgers: a search by random stopping has none; add its epsilon and delta "
                "to those of the other results"
            )
        return [*self.ledgers(), *([] if self.unused_steps is None else [self.unused_steps])]

    @property
    def unused_step_count(self) -> int:
        """The number of steps that were not taken but count in epsilon."""
        return 0 if self.unused_steps is None else self.unused_steps.step_count

    def epsilon(self, delta: float, accountant: str) -> float:
        """The epsilon of each training example at `delta`."""
        if self.stopping is None:
            return compute_epsilon(self.charged_ledgers(), delta, accountant)
        return self.stopping.epsilon(self.stopping.candidate, delta)

    def validation_epsilon(self, delta: float, accountant: str) -> float | None:
        """The epsilon of each validation example at `delta`; None without private validation."""
        if self.scores is None:
            return None
        if self.stopping is None:
            return compute_epsilon([self.scores], delta, accountant)
        return self.stopping.epsilon(self.scores, delta)

    def to_json(self) -> str:
        stopping = self.stopping
        return json.dumps(
            {
                "ledger": self.ledger.to_json(),
                "other_trainings": [ledger.to_json() for ledger in self.other_trainings],
                "scores": self.scores and self.scores.to_json(),
                "unused_steps": self.unused_steps and self.unused_steps.to_json(),
                "stopping": stopping
                and {**vars(stopping), "candidate": stopping.candidate.to_json()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> PrivacyCost:
        """The inverse of `to_json`; OsoError for values that no search has."""
        stored: dict[str, Any] = parse_json(text)
        stopping, scores = stored["stopping"], stored["scores"]
        if stopping is not None:
            candidate = Ledger.from_json(stopping["candidate"])
            stopping = RandomStopping(**{**stopping, "candidate": candidate})
            if stopping.distribution not in STOPPING_DISTRIBUTIONS:
                allowed = ", ".join(STOPPING_DISTRIBUTIONS)
                raise OsoError(
                    f"stopping: distribution {stopping.distribution!r}; must be one of {allowed}"
                )
            check_integer("stopping: mean_runs", stopping.mean_runs)
        ledger = Ledger.from_json(stored["ledger"])
        other_trainings = tuple(map(Ledger.from_json, stored["other_trainings"]))
        if stopping is not None and (other_trainings or not _within(ledger, stopping.candidate)):
            raise OsoError("stopping: the ledgers contain more than a candidate may release")
        scores = None if scores is None else Ledger.from_json(scores)
        unused_steps = stored["unused_steps"]
        unused_steps = None if unused_steps is None else Ledger.from_json(unused_steps)
        if unused_steps is not None and (
            stopping is not None or unused_steps.sampling != ledger.sampling
        ):
            raise OsoError("unused_steps: must have the sampling of the ledger, without stopping")
        if scores is not None and scores.sampling.rate != 1:
            raise OsoError(f"scores: sampling rate {scores.sampling.rate:g}; must be 1")
        return cls(ledger, other_trainings, stopping, scores, unused_steps)


def make_unused_steps(ledger: Ledger, count: int, noise_multiplier: float) -> Ledger | None:
    """A ledger of `count` planned steps that were not taken; None if `count` is 0.

    Its noise multiplier is that of the steps in `ledger`: a method's queries together have
    `noise_multiplier` up to rounding, and an accountant would compose two noise multipliers that
    differ by rounding separately.
    """
    if count <= 0:
        return None
    recorded = [
        nu for nu, _ in ledger.releases() if math.isclose(nu, noise_multiplier, rel_tol=ROUNDING)
    ]
    query = SumQuery("unused_steps", recorded[-1] if recorded else noise_multiplier)
    return Ledger(ledger.sampling, [((query,), count)])


def _within(ledger: Ledger, limit: Ledger) -> bool:
    """Whether `ledger` has at most as many steps as `limit`, equally sampled, none with less noise.

    Comparing epsilons at one delta would not suffice: a search's epsilon uses all Rényi orders.
    """
    (smallest_noise, steps), *further = limit.releases() or [(0.0, 0)]
    return (
        not further
        and ledger.sampling == limit.sampling
        and ledger.step_count <= steps
        and all(nu >= smallest_noise * (1 - ROUNDING) for nu, _ in ledger.releases())
    )
