"""`aggregate`: private labels from the votes of teachers that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from oso_dp.accounting.accountants import check_delta, compute_epsilon
from oso_dp.accounting.formatting import (
    format_large_delta_warning,
    format_spent_epsilon,
    format_used_noise_multiplier,
)
from oso_dp.accounting.pate import calibrate_stable, check_votes, compute_data_dependent_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.noise_range import SYSTEM_NORMAL, check_moves
from oso_dp.privacy.promise import RANDOMNESS
from oso_dp.privacy.rng_sources import SOURCES, get_source
from oso_dp.privacy.votes import GaussianPlan, LaplacePlan, StablePlan, VotePlan

UNANSWERED = -1
_LEAST_DELTA = 1e-10  # far above the probability of noise that bounded noise cannot have
# The options of each aggregator: those it needs, and those it allows.
AGGREGATORS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gaussian": (("answer_noise",), ()),
    "confident": (("threshold", "selection_noise", "answer_noise"), ("answers",)),
    "laplace": (("scale",), ()),
    "stable": (("epsilon", "unstable"), ()),
}


@dataclass(frozen=True)
class VotingResult:
    """The private labels of a vote. Every field is public, but `data_dependent_epsilon`.

    Attributes:
        labels: int64 [queries]; -1 where a query was not answered.
        epsilon: of all releases that were planned, at `delta`.
        delta: the delta of the guarantee.
        ledger: of the plan, from which `epsilon` is computed; also to add up with other ledgers on
            these data.
        statement: the guarantee in words.
        data_dependent_epsilon: of what was released, from the votes; a function of private data.
            None if `public` is False, or for the aggregator "stable".
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
    aggregator: str | None = None,
    answer_noise: float | None = None,
    threshold: float | None = None,
    selection_noise: float | None = None,
    answers: int | None = None,
    scale: float | None = None,
    epsilon: float | None = None,
    unstable: int | None = None,
    randomness: str = "system",
    seed: int | None = None,
    public: bool = False,
) -> VotingResult:
    """Label queries by a private vote of teachers.

    The teachers must have been trained on disjoint parts of the private data, one example in one
    part whatever the other examples are (as by a hash of its id); any models, tuned
    without privacy cost within their part. The inputs that are labelled must be public.

    Args:
        votes: how many teachers chose each class, for each query: whole numbers [queries, classes].
        delta: the delta of the guarantee; in (0, 1).
        aggregator: "gaussian" (GNMax), "confident" (Confident-GNMax), "laplace" (LNMax) or "stable"
            (stable winners, found by the sparse vector technique). Default: "confident" with a
            threshold, else "gaussian".
        answer_noise: of gaussian and confident, the standard deviation of the noise in each count
            of an answered query.
        threshold: of confident: a query is answered only if its largest count with noise reaches
            it.
        selection_noise: of confident, the standard deviation of the noise in that comparison.
        answers: of confident, the most queries that are answered, fixed beforehand. Default: all.
            Fewer cost less.
        scale: of laplace, the scale of the noise in each count.
        epsilon: of stable, the epsilon that the noise is calibrated to.
        unstable: of stable, the most queries that are found unstable, after which all end.
        randomness: "system" (a cryptographic generator) or "seeded" (public data only).
        seed: an integer; required for seeded randomness, and only then.
        public: whether the data are public, so that the data-dependent epsilon may be shown.

    Returns:
        The labels, with epsilon and statement.

    Raises:
        OsoError: for votes that are not integer counts >= 0 with equal row sums, and for options
            that are not allowed.

    Example:
        >>> result = aggregate(votes, delta=1e-5, threshold=200, selection_noise=150,
        ...     answer_noise=40, answers=300)
        >>> print(result.statement)
    """
    counts = check_votes(votes)
    if len(counts) == 0:
        raise OsoError("votes: no queries; must be at least one")
    if randomness not in SOURCES:
        raise OsoError(f"randomness: {randomness!r}; must be one of {', '.join(SOURCES)}")
    if (randomness == "seeded") != (seed is not None):
        raise OsoError("seed: must be set if and only if randomness='seeded'")
    teachers = int(counts[0].sum())
    if teachers < 2:
        raise OsoError(f"votes: of {teachers} teachers; must be of at least two")
    given = {
        "answer_noise": answer_noise,
        "threshold": threshold,
        "selection_noise": selection_noise,
        "answers": answers,
        "scale": scale,
        "epsilon": epsilon,
        "unstable": unstable,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if aggregator is None:
        is_confident = threshold is not None or selection_noise is not None
        aggregator = "confident" if is_confident else "gaussian"
    plan = make_plan(aggregator, options, len(counts), delta)
    if randomness == "system":
        moves = ((query, plan.queries) for step, _ in plan.ledger.steps for query in step)
        check_moves(delta, moves, SYSTEM_NORMAL)
    name = uuid4().hex if seed is None else f"votes {seed}"
    voting = plan.start(teachers, get_source(randomness), name)
    found = [voting.answer(row) for row in counts]
    labels = np.array([UNANSWERED if one is None else one for one in found], dtype=np.int64)
    spent = compute_epsilon([plan.ledger], delta)
    return VotingResult(
        labels,
        spent,
        delta,
        plan.ledger,
        _statement(plan, teachers, voting.answered, spent, delta, randomness),
        compute_data_dependent_epsilon(counts, labels != UNANSWERED, plan, delta)
        if public
        else None,
    )


def make_plan(aggregator: str, options: Mapping[str, Any], queries: int, delta: float) -> VotePlan:
    """The plan of an aggregator for these queries; OsoError for missing or unknown options."""
    check_delta(delta)
    if aggregator not in AGGREGATORS:
        raise OsoError(f"aggregator: {aggregator!r}; must be one of {', '.join(AGGREGATORS)}")
    if delta < _LEAST_DELTA:
        raise OsoError(
            f"delta: {delta:g}; must be >= {_LEAST_DELTA:g} for aggregator {aggregator!r}, whose "
            "noise is bounded"
        )
    needed, allowed = AGGREGATORS[aggregator]
    for name in needed:
        if name not in options:
            raise OsoError(f"{name}: missing; aggregator {aggregator!r} needs {', '.join(needed)}")
    for name in options:
        if name not in (*needed, *allowed):
            raise OsoError(
                f"{name}: not an option of aggregator {aggregator!r}, which has "
                f"{', '.join((*needed, *allowed))}"
            )
    if aggregator == "laplace":
        return LaplacePlan(queries, options["scale"])
    if aggregator == "stable":
        return calibrate_stable(queries, options["unstable"], options["epsilon"], delta)
    return GaussianPlan(
        queries,
        options["answer_noise"],
        options.get("answers"),
        options.get("threshold"),
        options.get("selection_noise"),
    )


def _statement(
    plan: VotePlan, teachers: int, answered: int, epsilon: float, delta: float, randomness: str
) -> str:
    lines = [
        f"({format_spent_epsilon(epsilon)}, {delta!r})-differential privacy, by rdp accounting.",
        "Protected: one example of the teachers' training data. Neighbours: data sets that differ "
        "by one example added or removed.",
        f"Released: the labels of {answered} of {plan.queries} queries, and which these are. "
        f"Epsilon counts {_counted(plan)}.",
        f"Noise: {_noise(plan)}.",
        f"Assumed: {teachers} teachers, trained on disjoint parts; the part of an example does not "
        "depend on the others. The inputs of the queries are public.",
        "Tuning: not included. Noise, thresholds and numbers of answers that were chosen by "
        "looking at the votes cost more.",
        "Not included: what else was released about these data.",
        f"Randomness: {RANDOMNESS[randomness]}",
        format_large_delta_warning(delta, teachers, "parts of the data"),
    ]
    return "\n".join(line for line in lines if line)


def _counted(plan: VotePlan) -> str:
    number = "because the number of answers depends on the votes"
    if isinstance(plan, StablePlan):
        return f"{plan.unstable} unstable queries, {number}"
    if isinstance(plan, GaussianPlan) and plan.threshold is not None:
        return f"{plan.answers} answers and {plan.queries} comparisons, {number}"
    return f"all {plan.queries} answers"


def _noise(plan: VotePlan) -> str:
    if isinstance(plan, LaplacePlan):
        return f"Laplace, of scale {format_used_noise_multiplier(plan.scale)} in each count"
    if isinstance(plan, StablePlan):
        return (
            f"Laplace, of scale {2 * plan.noise:.4g} in the distance to instability, and "
            f"{plan.noise:.4g} in the threshold {plan.margin:.4g} that it must exceed"
        )
    assert isinstance(plan, GaussianPlan)
    deviation = format_used_noise_multiplier(plan.answer_noise)
    text = f"Gaussian, of standard deviation {deviation} in each count of an answer"
    if plan.threshold is not None and plan.selection_noise is not None:
        noise = format_used_noise_multiplier(plan.selection_noise)
        text += f", {noise} in the comparison of the largest count with {plan.threshold:g}"
    return text
