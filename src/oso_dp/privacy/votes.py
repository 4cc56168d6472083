"""Noisy votes of teachers on queries (PATE): answers of the GNMax and Confident-GNMax aggregators.

K teachers are trained on disjoint parts of the data and vote on each query. An example is in one
part, so it changes one teacher's votes: of a query two counts by 1 each, and the largest count by 1
at most (Papernot et al. 2018). Each release is in the ledger before its answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from oso_dp.errors import OsoError
from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.privacy.sampling import PoissonSampling

THRESHOLD, ARGMAX = "vote_threshold", "noisy_votes"
# Of the largest count, and of the vector of counts in 2-norm.
_OF_LARGEST, _OF_COUNTS = 1.0, math.sqrt(2)


@dataclass(frozen=True)
class VotePlan:
    """What may be released, fixed before the first query; all of it is charged.

    Attributes:
        queries: Q, the most queries that are asked.
        answers: A, the most that are answered; Q without a threshold.
        answer_noise: standard deviation of the noise in each count of an answered query.
        threshold: a query is answered if its largest count with noise reaches it; None: always.
        selection_noise: standard deviation of that noise; with a threshold only.

    Raises:
        OsoError: for values that are not allowed or do not fit.
    """

    queries: int
    answers: int
    answer_noise: float
    threshold: float | None = None
    selection_noise: float | None = None

    def __post_init__(self) -> None:
        for name in ("queries", "answers"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise OsoError(f"{name}: {value!r}; must be an integer >= 1")
        if self.answers > self.queries:
            raise OsoError(f"answers: {self.answers}; must be <= queries, {self.queries}")
        if (self.threshold is None) != (self.selection_noise is None):
            raise OsoError("threshold, selection_noise: must both be given, or neither")
        if self.threshold is None and self.answers != self.queries:
            raise OsoError(
                f"answers: {self.answers}; must be queries, {self.queries}, without a threshold"
            )
        for name in ("answer_noise", "selection_noise"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise OsoError(f"{name}: {value!r}; must be a number > 0")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise OsoError(f"threshold: {self.threshold!r}; must be a finite number")

    @property
    def ledger(self) -> Ledger:
        """Everything that may be released; fewer releases cost no less, since their number depends
        on the votes."""
        planned = Ledger(PoissonSampling(1.0))
        if self.selection_noise is not None:
            selection = SumQuery(THRESHOLD, self.selection_noise / _OF_LARGEST)
            planned.steps.append(((selection,), self.queries))
        answer = SumQuery(ARGMAX, self.answer_noise / _OF_COUNTS)
        planned.steps.append(((answer,), self.answers))
        return planned


class NoisyVotes:
    """Answers queries about the votes of so many teachers, within a plan; `ledger` has what was
    released."""

    def __init__(
        self, teachers: int, plan: VotePlan, randomness: RandomSource, run_id: str
    ) -> None:
        self.teachers, self.plan, self.run_id = teachers, plan, run_id
        sampling = PoissonSampling(1.0)
        self.random_numbers = BatchRNG(randomness, sampling, 1, torch.device("cpu"))
        self.ledger = Ledger(sampling)
        self.asked = self.answered = 0

    def answer(self, counts: np.ndarray) -> int | None:
        """The noisy winner of the next query, whose counts [classes] add up to K; None if the query
        is not answered.

        Raises:
            ValueError: beyond the planned queries.
        """
        if self.asked >= self.plan.queries:
            raise ValueError(f"queries: {self.plan.queries} were asked, as planned")
        votes = torch.as_tensor(np.asarray(counts, dtype=np.float64))
        if votes.dim() != 1 or (votes < 0).any() or float(votes.sum()) != self.teachers:
            raise OsoError(f"votes: must be counts >= 0 that add up to {self.teachers} teachers")
        self.asked += 1
        plan = self.plan
        if plan.threshold is not None and plan.selection_noise is not None:
            self.ledger.record((SumQuery(THRESHOLD, plan.selection_noise / _OF_LARGEST),))
            largest = self._with_noise(THRESHOLD, votes.max()[None], plan.selection_noise)
            if float(largest) < plan.threshold:
                return None
        if self.answered >= plan.answers:
            return None
        self.answered += 1
        self.ledger.record((SumQuery(ARGMAX, plan.answer_noise / _OF_COUNTS),))
        return int(self._with_noise(ARGMAX, votes, plan.answer_noise).argmax())

    def _with_noise(self, name: str, values: torch.Tensor, deviation: float) -> torch.Tensor:
        """Noise of this query and purpose alone."""
        noise = NoiseSpec(f"noise/{name}/{deviation:.7g}", torch.tensor([deviation]).double())
        (noisy,) = self.random_numbers.add_noise([self.run_id], self.asked, [values[None]], [noise])
        return noisy[0]
