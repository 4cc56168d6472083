"""All that a model's statement pays for: its own training, and the search that it won."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.tuning_cost import STOPPING_ETA, compute_random_stopping_epsilon
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger, SumQuery

_ROUNDING_FACTOR = 1 - 1e-6
STOPPING_DISTRIBUTIONS = [
    name for name in STOPPING_ETA if name != "poisson"
]  # with that, K may be 0


@dataclass(frozen=True)
class RandomStopping:
    """A random number of trainings of which only the best is released: its mean and shape.

    `one`: what a candidate may cost at most, whatever became of the one that was released.
    """

    mean_runs: int
    distribution: str  # one of STOPPING_SHAPES
    candidate: Ledger

    def epsilon(self, one: Ledger, delta: float) -> float:
        """Of all candidates together, each of which costs `one` at most."""
        return compute_random_stopping_epsilon(
            one, self.mean_runs, STOPPING_ETA[self.distribution], delta
        )


@dataclass(frozen=True)
class PrivacyCost:
    """`ledger`: of the model's own training.

    `others`: of the other trainings of its search, which are released, too (composition); those
    that diverged with all steps that were planned.
    `unused_steps`: steps that were planned and never made, since it diverged, or it or its search
    was stopped. They count: when a training ends may tell of what it released, and epsilon
    of a number of steps that depends on the data is no guarantee.
    `stopping`: where only the best is. `scores`: of the noisy scores of the validation examples;
    under random stopping, those of one candidate.
    """

    ledger: Ledger
    other_trainings: tuple[Ledger, ...] = ()
    stopping: RandomStopping | None = None
    scores: Ledger | None = None
    unused_steps: Ledger | None = None

    def ledgers(self) -> list[Ledger]:
        """Of all trainings that are released: what training on counts as spent."""
        return [self.ledger, *self.other_trainings]

    @property
    def unused_step_count(self) -> int:
        """How many steps epsilon counts that were never made."""
        return 0 if self.unused_steps is None else self.unused_steps.step_count

    def epsilon(self, delta: float, accountant: str) -> float:
        """That each training example is protected by, at delta."""
        if self.stopping is None:
            counted = [] if self.unused_steps is None else [self.unused_steps]
            return compute_epsilon([*self.ledgers(), *counted], delta, accountant)
        return self.stopping.epsilon(self.stopping.candidate, delta)

    def validation_epsilon(self, delta: float, accountant: str) -> float | None:
        """That each validation example is protected by, at delta; None: there are none."""
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
                "others": [ledger.to_json() for ledger in self.other_trainings],
                "scores": self.scores and self.scores.to_json(),
                "unused_steps": self.unused_steps and self.unused_steps.to_json(),
                "stopping": stopping and {**vars(stopping), "one": stopping.candidate.to_json()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> PrivacyCost:
        """What `to_json` wrote; OsoError for values that no search has."""
        stored: dict[str, Any] = parse_json(text)
        stopping, scores = stored["stopping"], stored["scores"]
        if stopping is not None:
            stopping = RandomStopping(**{**stopping, "one": Ledger.from_json(stopping["one"])})
            if (
                stopping.distribution not in STOPPING_DISTRIBUTIONS
                or type(stopping.mean_runs) is not int
            ):
                raise OsoError("stopping: not known")
        ledger = Ledger.from_json(stored["ledger"])
        others = tuple(map(Ledger.from_json, stored["others"]))
        if stopping is not None and (others or not _within(ledger, stopping.candidate)):
            raise OsoError("stopping: its ledgers hold more than a candidate may release")
        scores = None if scores is None else Ledger.from_json(scores)
        unused_steps = stored["unused_steps"]
        unused_steps = None if unused_steps is None else Ledger.from_json(unused_steps)
        if unused_steps is not None and (
            stopping is not None or unused_steps.sampling != ledger.sampling
        ):
            raise OsoError("unused_steps: its steps are of no training here")
        if scores is not None and scores.sampling.rate != 1:
            raise OsoError("scores: are on all validation examples, and not on a part of them")
        return cls(ledger, others, stopping, scores, unused_steps)


def make_unused_steps(ledger: Ledger, count: int, noise_multiplier: float) -> Ledger | None:
    """So many steps that were planned with this noise, at what the last ones made really cost.

    None for none. A method's sums together cost `noise_multiplier`, but for the last digit, by
    which steps of one kind would be two kinds to an accountant.
    """
    if count <= 0:
        return None
    made = [nu for nu, _ in ledger.releases() if math.isclose(nu, noise_multiplier, rel_tol=1e-9)]
    query = SumQuery("unused_steps", made[-1] if made else noise_multiplier)
    return Ledger(ledger.sampling, [((query,), count)])


def _within(ledger: Ledger, most: Ledger) -> bool:
    """Whether this is at most so many steps of the same batches, none with less noise.

    An epsilon at one delta would not tell: that of a search rests on all Rényi orders.
    """
    (least, steps), *more = most.releases() or [(0.0, 0)]
    return (
        not more
        and ledger.sampling == most.sampling
        and ledger.step_count <= steps
        and all(nu >= least * _ROUNDING_FACTOR for nu, _ in ledger.releases())
    )
