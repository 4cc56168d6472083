"""All that a model's statement pays for: its own training, and the search that it won."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from oso_dp.accounting.accountants import epsilon_of
from oso_dp.accounting.search import SHAPES, epsilon_of_stopped
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger, SumQuery

_ROUNDED = 1 - 1e-6
STOPPING_SHAPES = [name for name in SHAPES if name != "poisson"]  # with that, K may be 0


@dataclass(frozen=True)
class Stopping:
    """A random number of trainings of which only the best is released: its mean and shape.

    `one`: what a candidate may cost at most, whatever became of the one that was released.
    """

    mean_runs: int
    shape: str  # one of STOPPING_SHAPES
    one: Ledger

    def epsilon(self, one: Ledger, delta: float) -> float:
        """Of all candidates together, each of which costs `one` at most."""
        return epsilon_of_stopped(one, self.mean_runs, SHAPES[self.shape], delta)


@dataclass(frozen=True)
class Paid:
    """`ledger`: of the model's own training.

    `others`: of the other trainings of its search, which are released, too (composition); those
    that diverged with all steps that were planned.
    `not_made`: steps that were planned and never made, since the training diverged, or it or its
    search was stopped. They count: when a training ends may tell of what it released, and epsilon
    of a number of steps that depends on the data is no guarantee.
    `stopping`: where only the best is. `scores`: of the noisy scores of the validation examples;
    under random stopping, those of one candidate.
    """

    ledger: Ledger
    others: tuple[Ledger, ...] = ()
    stopping: Stopping | None = None
    scores: Ledger | None = None
    not_made: Ledger | None = None

    def ledgers(self) -> list[Ledger]:
        """Of all trainings that are released: what training on counts as spent."""
        return [self.ledger, *self.others]

    @property
    def uncalled(self) -> int:
        """How many steps epsilon counts that were never made."""
        return 0 if self.not_made is None else self.not_made.step_count

    def epsilon(self, delta: float, accountant: str) -> float:
        """That each training example is protected by, at delta."""
        if self.stopping is None:
            counted = [] if self.not_made is None else [self.not_made]
            return epsilon_of([*self.ledgers(), *counted], delta, accountant)
        return self.stopping.epsilon(self.stopping.one, delta)

    def validation_epsilon(self, delta: float, accountant: str) -> float | None:
        """That each validation example is protected by, at delta; None: there are none."""
        if self.scores is None:
            return None
        if self.stopping is None:
            return epsilon_of([self.scores], delta, accountant)
        return self.stopping.epsilon(self.scores, delta)

    def to_json(self) -> str:
        stopping = self.stopping
        return json.dumps(
            {
                "ledger": self.ledger.to_json(),
                "others": [ledger.to_json() for ledger in self.others],
                "scores": self.scores and self.scores.to_json(),
                "not_made": self.not_made and self.not_made.to_json(),
                "stopping": stopping and {**vars(stopping), "one": stopping.one.to_json()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Paid:
        """What `to_json` wrote; OsoError for values that no search has."""
        stored: dict[str, Any] = parse_json(text)
        stopping, scores = stored["stopping"], stored["scores"]
        if stopping is not None:
            stopping = Stopping(**{**stopping, "one": Ledger.from_json(stopping["one"])})
            if stopping.shape not in STOPPING_SHAPES or type(stopping.mean_runs) is not int:
                raise OsoError("stopping: not known")
        ledger = Ledger.from_json(stored["ledger"])
        others = tuple(map(Ledger.from_json, stored["others"]))
        if stopping is not None and (others or not _within(ledger, stopping.one)):
            raise OsoError("stopping: its ledgers hold more than a candidate may release")
        scores = None if scores is None else Ledger.from_json(scores)
        not_made = stored["not_made"]
        not_made = None if not_made is None else Ledger.from_json(not_made)
        if not_made is not None and (stopping is not None or not_made.sampling != ledger.sampling):
            raise OsoError("not_made: its steps are of no training here")
        if scores is not None and scores.sampling.rate != 1:
            raise OsoError("scores: are on all validation examples, and not on a part of them")
        return cls(ledger, others, stopping, scores, not_made)


def steps_not_made(ledger: Ledger, count: int, noise_multiplier: float) -> Ledger | None:
    """So many steps that were planned with this noise, at what the last ones made really cost.

    None for none. A method's sums together cost `noise_multiplier`, but for the last digit, by
    which steps of one kind would be two kinds to an accountant.
    """
    if count <= 0:
        return None
    made = [nu for nu, _ in ledger.releases() if math.isclose(nu, noise_multiplier, rel_tol=1e-9)]
    query = SumQuery("not_made", made[-1] if made else noise_multiplier)
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
        and all(nu >= least * _ROUNDED for nu, _ in ledger.releases())
    )
