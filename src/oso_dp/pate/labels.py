"""Private labels of the pool's first inputs, at an epsilon of the study, and their costs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.pate import compute_data_dependent_epsilon
from oso_dp.accounting.smooth_sensitivity import compute_sanitized_cost
from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.pate.aggregate import UNANSWERED
from oso_dp.pate.config import PateConfig
from oso_dp.pate.record_files import read_record, write_record
from oso_dp.pate.teachers import POOL
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.privacy.votes import GaussianPlan, VotePlan

KIND = "labels"


def label_pool(
    config: PateConfig,
    aggregator: str,
    epsilon: float,
    votes: npt.NDArray[np.int64],
    facts: dict[str, Any],
    arrays: Arrays,
) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """Labels of the pool, -1 where there is none, and their facts: `facts`, costs and accuracies.

    The data are public, so the costs from the votes are shown, and the accuracies from the pool's
    own labels, which nothing else reads. OsoError for an epsilon that the aggregator does not have.
    """
    section = config.find_aggregator(aggregator)
    allowed = section.epsilons or config.epsilons
    if epsilon not in allowed:
        names = ", ".join(f"{one:g}" for one in allowed)
        raise OsoError(f"epsilon: {epsilon:g}; must be one of {names} for {aggregator}")
    teachers = int(facts["teachers"])
    plan = section.make_plan(teachers, epsilon, config.delta)
    name = ", ".join(f"{key} {value}" for key, value in facts.items())
    options = section.options_text({"epsilons"})
    chosen = f"{aggregator}, {options}, epsilon {epsilon:g}, delta {config.delta:g}"
    voting = plan.start(teachers, Seeded(), f"{name}, {chosen}")
    asked = votes[: section.queries]
    answers = [voting.answer(row) for row in asked]
    found = np.array([UNANSWERED if one is None else one for one in answers], dtype=np.int64)
    labels = np.full(len(votes), UNANSWERED)
    labels[: len(found)] = found
    is_answered = found != UNANSWERED
    truth = arrays.test_targets[POOL]
    right = found[is_answered] == truth[: len(found)][is_answered]
    return labels, {
        **facts,
        "aggregator": aggregator,
        "options": options,
        "plan": {key: value for key, value in asdict(plan).items() if value is not None},
        "queries": plan.queries,
        "answers": plan.answers,
        "epsilon": epsilon,
        "delta": config.delta,
        **_costs(plan, asked.astype(np.float64), is_answered, config.delta),
        "answered": int(is_answered.sum()),
        "label_accuracy": float(right.mean()) if len(right) else None,
        "teacher_accuracy": float(votes[np.arange(len(votes)), truth].mean()) / teachers,
        "ensemble_accuracy": float((votes.argmax(axis=1) == truth).mean()),
        "ledger": voting.ledger.to_json(),
        "planned_ledger": plan.ledger.to_json(),
    }


def _costs(
    plan: VotePlan, votes: npt.NDArray, answered: npt.NDArray[np.bool_], delta: float
) -> dict[str, float | None]:
    """Epsilon four ways; None for a way that the aggregator does not have."""
    costs: dict[str, float | None] = {
        "epsilon_rdp": compute_epsilon([plan.ledger], delta),
        "epsilon_exact": None,
        "epsilon_data_dependent": compute_data_dependent_epsilon(votes, answered, plan, delta),
        "epsilon_sanitized": None,
        "sanitized_deviation": None,
    }
    if isinstance(plan, GaussianPlan):
        costs["epsilon_exact"] = compute_epsilon([plan.ledger], delta, "pld")
        sanitized = compute_sanitized_cost(votes, answered, plan, delta)
        costs["epsilon_sanitized"] = sanitized.epsilon
        costs["sanitized_deviation"] = sanitized.deviation
    return costs


def write_labels(path: Path, labels: npt.NDArray[np.int64], facts: dict[str, Any]) -> None:
    write_record(path, KIND, {"labels": labels}, facts)


def read_labels(path: Path) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    arrays, facts = read_record(path, KIND)
    return arrays["labels"], facts
