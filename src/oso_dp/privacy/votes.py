"""Noisy votes of teachers on queries (PATE), by one of four aggregators.

K teachers are trained on disjoint parts of the data and vote on each query. An example is in one
part, so it changes one teacher's votes: of a query two counts by 1 each, the largest count by 1 at
most, and the gap between the two largest by 2 at most. Each release is in the ledger before its
answer.

- `GaussianPlan`: the winner of counts with Gaussian noise (GNMax); with a threshold, only where the
  largest count with noise reaches it (Confident-GNMax; Papernot et al. 2018).
- `LaplacePlan`: the winner of counts with Laplace noise (LNMax; Papernot et al. 2017).
- `StablePlan`: the winner itself where it is stable, which the sparse vector technique decides;
  only unstable queries cost privacy (Bassily, Thakkar and Thakurta 2018).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from oso_dp.errors import OsoError
from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec
from oso_dp.privacy.ledger import LAPLACE, PURE, Ledger, SumQuery
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.value_checks import check_integer, check_number

THRESHOLD, ARGMAX, INSTABILITY = "vote_threshold", "noisy_votes", "instability"
# In one example: of the largest count, of the vector of counts in 2-norm, and of the number of
# votes that may change before the winner does.
_LARGEST_COUNT_SENSITIVITY, _COUNTS_SENSITIVITY, _DISTANCE_SENSITIVITY = 1.0, math.sqrt(2), 1.0

_MAX_FAILURE = 1 - 2**-20  # which no delta covers

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class VotePlan(ABC):
    """What may be released, fixed before the first query; all of it is charged.

    Attributes:
        queries: Q, the most queries that are asked.

    Raises:
        OsoError: for values that are not allowed or do not fit.
    """

    queries: int

    def __post_init__(self) -> None:
        check_integer("queries", self.queries, ge=1)

    @property
    @abstractmethod
    def ledger(self) -> Ledger:
        """Everything that may be released; fewer releases cost no less, since their number depends
        on the votes."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """The most queries that are answered."""

    @abstractmethod
    def check(self, teachers: int) -> None:
        """OsoError if hardly any query would be answered with this number of teachers."""

    def start(self, teachers: int, randomness: RandomSource, run_id: str) -> NoisyVotes[Any]:
        """What answers queries about the votes of this number of teachers, within this plan."""
        self.check(teachers)
        return self._start(teachers, randomness, run_id)

    @abstractmethod
    def _start(self, teachers: int, randomness: RandomSource, run_id: str) -> NoisyVotes[Any]: ...


AnyPlan = TypeVar("AnyPlan", bound=VotePlan)


class NoisyVotes(ABC, Generic[AnyPlan]):
    """Answers queries about the votes of K teachers, within a plan.

    `ledger` has what was released; `answered` counts the answers.
    """

    def __init__(self, plan: AnyPlan, teachers: int, randomness: RandomSource, run_id: str) -> None:
        self.plan, self.teachers, self.run_id = plan, teachers, run_id
        sampling = PoissonSampling(1.0)
        self.random_numbers = BatchRNG(randomness, sampling, 1, torch.device("cpu"))
        self.ledger = Ledger(sampling)
        self.asked = self.answered = 0

    def answer(self, counts: npt.NDArray) -> int | None:
        """The private label of the next query, whose counts [classes] add up to K; None if the
        query is not answered.

        Raises:
            OsoError: for counts that are negative or do not add up to K.
            ValueError: after the planned queries.
        """
        if self.asked >= self.plan.queries:
            raise ValueError(f"queries: {self.plan.queries} were asked; must be <= the plan's")
        votes = np.asarray(counts, dtype=np.float64)
        if votes.ndim != 1 or (votes < 0).any() or votes.sum() != self.teachers:
            raise OsoError(f"votes: must be counts >= 0 that add up to {self.teachers} teachers")
        self.asked += 1
        label = self._answer(votes)
        self.answered += label is not None
        return label

    @abstractmethod
    def _answer(self, votes: Counts) -> int | None:
        """The label of these valid counts; None if there is none."""

    def _normal(self, name: str, values: Counts, deviation: float) -> Counts:
        """The values with Gaussian noise of this query and purpose alone."""
        noise = NoiseSpec(
            f"noise/{name}/{deviation:.7g}", torch.tensor([deviation], dtype=torch.float64)
        )
        totals = [torch.from_numpy(values)[None]]
        (noisy,) = self.random_numbers.add_noise([self.run_id], self.asked, totals, [noise])
        return noisy[0].numpy()

    def _laplace(self, name: str, count: int, scale: float) -> Counts:
        """Laplace noise of this query and purpose alone."""
        return self.random_numbers.laplace(self.run_id, name, self.asked, scale, count)


@dataclass(frozen=True)
class GaussianPlan(VotePlan):
    """GNMax, and Confident-GNMax with a threshold.

    Attributes:
        limit: A, the most queries that are answered; None: all.
        answer_noise: standard deviation of the noise in each count of an answered query.
        threshold: a query is answered if its largest count with noise reaches it; None: always.
        selection_noise: standard deviation of that noise; with a threshold only.
    """

    answer_noise: float
    limit: int | None = None
    threshold: float | None = None
    selection_noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit is not None:
            check_integer("answers", self.limit, ge=1)
            if self.limit > self.queries:
                raise OsoError(f"answers: {self.limit}; must be <= queries, {self.queries}")
        if (self.threshold is None) != (self.selection_noise is None):
            raise OsoError("threshold, selection_noise: must both be given, or neither")
        if self.threshold is None and self.answers != self.queries:
            raise OsoError(
                f"answers: {self.answers}; must be queries, {self.queries}, without a threshold"
            )
        check_number("answer_noise", self.answer_noise, gt=0)
        if self.threshold is not None and self.selection_noise is not None:
            check_number("selection_noise", self.selection_noise, gt=0)
            check_number("threshold", self.threshold)

    @property
    def answers(self) -> int:
        return self.queries if self.limit is None else self.limit

    @property
    def ledger(self) -> Ledger:
        planned = Ledger(PoissonSampling(1.0))
        if self.selection_noise is not None:
            planned.steps.append((_comparison(self.selection_noise), self.queries))
        planned.steps.append((_gaussian_answer(self.answer_noise), self.answers))
        return planned

    def check(self, teachers: int) -> None:
        reach = teachers + 6 * (self.selection_noise or 0)
        if self.threshold is not None and self.threshold > reach:
            raise OsoError(
                f"threshold: {self.threshold:g}; must be <= {teachers} teachers + 6 times "
                "selection_noise, or nothing is answered"
            )

    def _start(self, teachers: int, randomness: RandomSource, run_id: str) -> NoisyVotes[Any]:
        return _GaussianVotes(self, teachers, randomness, run_id)


class _GaussianVotes(NoisyVotes[GaussianPlan]):
    def _answer(self, votes: Counts) -> int | None:
        plan = self.plan
        if plan.threshold is not None and plan.selection_noise is not None:
            self.ledger.record(_comparison(plan.selection_noise))
            largest = self._normal(THRESHOLD, votes.max(keepdims=True), plan.selection_noise)
            if largest[0] < plan.threshold:
                return None
        if self.answered >= plan.answers:
            return None
        self.ledger.record(_gaussian_answer(plan.answer_noise))
        return int(self._normal(ARGMAX, votes, plan.answer_noise).argmax())


def _comparison(noise: float) -> tuple[SumQuery, ...]:
    return (SumQuery(THRESHOLD, noise / _LARGEST_COUNT_SENSITIVITY),)


def _gaussian_answer(noise: float) -> tuple[SumQuery, ...]:
    return (SumQuery(ARGMAX, noise / _COUNTS_SENSITIVITY),)


@dataclass(frozen=True)
class LaplacePlan(VotePlan):
    """LNMax.

    Attributes:
        scale: of the noise in each count.
    """

    scale: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("scale", self.scale, gt=0)

    @property
    def answers(self) -> int:
        return self.queries

    @property
    def ledger(self) -> Ledger:
        return Ledger(PoissonSampling(1.0), [(_laplace_answer(self.scale), self.queries)])

    def check(self, teachers: int) -> None:
        pass  # answers every query

    def _start(self, teachers: int, randomness: RandomSource, run_id: str) -> NoisyVotes[Any]:
        return _LaplaceVotes(self, teachers, randomness, run_id)


class _LaplaceVotes(NoisyVotes[LaplacePlan]):
    def _answer(self, votes: Counts) -> int | None:
        self.ledger.record(_laplace_answer(self.plan.scale))
        return int((votes + self._laplace(ARGMAX, len(votes), self.plan.scale)).argmax())


def _laplace_answer(scale: float) -> tuple[SumQuery, ...]:
    """Of the two counts that one example moves by 1 each."""
    return tuple(SumQuery(f"{ARGMAX}_{place}", scale, LAPLACE) for place in ("lost", "gained"))


@dataclass(frozen=True)
class StablePlan(VotePlan):
    """The winner itself, where it is stable; T queries may be found unstable, then all end.

    A query's distance is the number of votes that may change while its winner stays. It is
    answered if its distance, with Laplace noise of scale 2 * noise, exceeds the margin, with noise
    of its own of scale `noise` that is drawn again after each unstable query (above threshold;
    Dwork and Roth 2014, Theorem 3.23). Where the winner depends on one example, the distance is 0;
    that such a query is answered nevertheless is the plan's failure, which delta covers.

    Attributes:
        unstable: T, the most queries that are found unstable.
        noise: scale of the threshold's noise.
        margin: of the comparison, in votes.
    """

    unstable: int
    noise: float
    margin: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("unstable", self.unstable, ge=1)
        check_number("noise", self.noise, gt=0)
        check_number("margin", self.margin, ge=0)

    @property
    def answers(self) -> int:
        return self.queries

    @property
    def failure_of_one(self) -> float:
        """A bound on the probability that a query of distance 0 is answered.

        That Laplace noise of scale 2 * noise exceeds the margin by more than noise of scale
        `noise`, for any of T thresholds: one that many queries have exceeded is not as if fresh.
        """
        far = self.margin / self.noise
        return self.unstable * (4 * math.exp(-far / 2) - math.exp(-far)) / 6

    @property
    def ledger(self) -> Ledger:
        steps = [(_instability(self.noise), self.unstable)]
        return Ledger(
            PoissonSampling(1.0), steps, min(_MAX_FAILURE, self.queries * self.failure_of_one)
        )

    def check(self, teachers: int) -> None:
        if self.margin > teachers / 2:
            raise OsoError(
                f"unstable: {self.unstable}; a query's winner would need a lead of "
                f"{2 * self.margin:.0f} votes of {teachers}; use more teachers, a larger epsilon "
                "or fewer unstable queries"
            )

    def _start(self, teachers: int, randomness: RandomSource, run_id: str) -> NoisyVotes[Any]:
        return _StableVotes(self, teachers, randomness, run_id)


class _StableVotes(NoisyVotes[StablePlan]):
    """Its ledger has a search for an unstable query from when the search begins."""

    unstable = 0  # found so far
    _threshold: float | None = None  # of the search that goes on

    def _answer(self, votes: Counts) -> int | None:
        plan = self.plan
        if self.unstable >= plan.unstable:
            return None
        if self._threshold is None:
            self.ledger.record(_instability(plan.noise))
            self._threshold = plan.margin + self._laplace("threshold", 1, plan.noise)[0]
        self.ledger.failure = min(_MAX_FAILURE, self.ledger.failure + plan.failure_of_one)
        noise = self._laplace(INSTABILITY, 1, 2 * plan.noise)[0]
        if distance_to_instability(votes) + noise > self._threshold:
            return int(votes.argmax())
        self.unstable += 1
        self._threshold = None
        return None


def distance_to_instability(votes: Counts) -> int:
    """How many votes may change, whichever they are, while the winner stays."""
    second, first = np.partition(votes, -2)[-2:]
    return max(0, math.ceil((first - second) / 2) - 1)


def _instability(noise: float) -> tuple[SumQuery, ...]:
    """A search: epsilon = 1 / noise for its threshold, and 2 / (2 * noise) for its queries."""
    return (SumQuery(INSTABILITY, noise / (2 * _DISTANCE_SENSITIVITY), PURE),)
