"""`aggregate`: private labels from the votes of teachers that were trained elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from oso_dp.accounting.accountants import check_delta, compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon, format_used_noise_multiplier
from oso_dp.accounting.pate import argmax_rdp, check_votes, epsilon_of_rdp, threshold_rdp
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.promise import RANDOMNESS
from oso_dp.privacy.rng_sources import SOURCES, get_source
from oso_dp.privacy.votes import NoisyVotes, VotePlan

_UNANSWERED = -1


@dataclass(frozen=True)
class VotingResult:
    """The private labels of a vote. Every field is public, but `data_dependent_epsilon`.

    Attributes:
        labels: int64 [queries]; -1 where a query was not answered.
        epsilon: of all releases that were planned, at `delta`.
        delta: the delta of the guarantee.
        ledger: what was released.
        statement: the guarantee in words.
        data_dependent_epsilon: of what was released, from the votes; a function of private data.
            None unless the data are public.
    """

    labels: npt.NDArray[np.int64]
    epsilon: float
    delta: float
    ledger: Ledger
    statement: str
    data_dependent_epsilon: float | None = None


def aggregate(
    votes: Any,
    *,
    delta: float,
    answer_noise: float,
    threshold: float | None = None,
    selection_noise: float | None = None,
    answers: int | None = None,
    randomness: str = "system",
    seed: int | None = None,
    public: bool = False,
) -> VotingResult:
    """Label queries by a noisy vote of teachers: GNMax, or Confident-GNMax with a threshold.

    The teachers must have been trained on disjoint parts of the private data, one example in one
    part whatever the other examples are (as by a hash of its id); any models, searched at no cost
    within their part. The inputs that are labelled must be public.

    Args:
        votes: how many teachers chose each class, for each query: whole numbers [queries, classes].
        delta: the delta of the guarantee; in (0, 1).
        answer_noise: standard deviation of the Gaussian noise in each count of an answered query.
        threshold: a query is answered only if its largest count with noise reaches it. Default:
            all are answered.
        selection_noise: standard deviation of the noise in that comparison.
        answers: the most queries that are answered, fixed beforehand; with a threshold. Default:
            all. Fewer cost less.
        randomness: "system" (a cryptographic generator) or "seeded" (public data only).
        seed: an integer; required for seeded randomness, and only then.
        public: whether the data are public, so that the data-dependent epsilon may be shown.

    Returns:
        The labels, with epsilon and statement.

    Raises:
        OsoError: for votes that are no counts of the same number of teachers, and for options that
            are not allowed.

    Example:
        >>> result = aggregate(votes, delta=1e-5, threshold=200, selection_noise=150,
        ...     answer_noise=40, answers=300)
        >>> print(result.statement)
    """
    counts = check_votes(votes)
    check_delta(delta)
    if len(counts) == 0:
        raise OsoError("votes: no queries; must be at least one")
    if randomness not in SOURCES:
        raise OsoError(f"randomness: {randomness!r}; must be one of {', '.join(SOURCES)}")
    if (randomness == "seeded") != (seed is not None):
        raise OsoError("seed: must be set if and only if randomness='seeded'")
    teachers = int(counts[0].sum())
    if teachers < 2:
        raise OsoError(f"votes: of {teachers} teachers; must be of at least two")
    plan = VotePlan(len(counts), answers or len(counts), answer_noise, threshold, selection_noise)
    name = uuid4().hex if seed is None else f"votes {seed}"
    voting = NoisyVotes(teachers, plan, get_source(randomness), name)
    found = [voting.answer(row) for row in counts]
    labels = np.array([_UNANSWERED if one is None else one for one in found], dtype=np.int64)
    epsilon = compute_epsilon([plan.ledger], delta)
    return VotingResult(
        labels,
        epsilon,
        delta,
        voting.ledger,
        _statement(plan, teachers, voting.answered, epsilon, delta, randomness),
        _data_dependent_epsilon(counts, labels, plan, delta) if public else None,
    )


def _data_dependent_epsilon(
    votes: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], plan: VotePlan, delta: float
) -> float:
    """Of every threshold, and of the queries that were answered."""
    answered = votes[labels != _UNANSWERED]
    rdp = argmax_rdp(answered, plan.answer_noise).sum(axis=0)
    if plan.threshold is not None and plan.selection_noise is not None:
        rdp = rdp + threshold_rdp(votes, plan.threshold, plan.selection_noise).sum(axis=0)
    return epsilon_of_rdp(rdp, delta)


def _statement(
    plan: VotePlan, teachers: int, answered: int, epsilon: float, delta: float, randomness: str
) -> str:
    sums = f"{format_used_noise_multiplier(plan.answer_noise)} in each count of an answer"
    if plan.threshold is not None and plan.selection_noise is not None:
        noise = format_used_noise_multiplier(plan.selection_noise)
        sums += f", {noise} in the comparison of the largest count with {plan.threshold:g}"
    return "\n".join(
        [
            f"({format_spent_epsilon(epsilon)}, {delta!r})-differential privacy, by rdp "
            "accounting.",
            "Protected: one example of the teachers' training data. Neighbours: data sets that "
            "differ by one example added or removed.",
            f"Released: the labels of {answered} of {plan.queries} queries, and which these are. "
            f"Epsilon counts {plan.answers} answers and all comparisons, since how many there are "
            "depends on the votes.",
            f"Noise, as standard deviation: {sums}.",
            f"Assumed: {teachers} teachers, trained on disjoint parts; the part of an example does "
            "not depend on the others. The inputs of the queries are public.",
            "Not included: what else was released about these data.",
            f"Randomness: {RANDOMNESS[randomness]}",
        ]
    )
