"""Compares a rerun with its stored row.

Results are bit-identical with the same code, device (CPU model, instructions, threads), torch and
precision. Otherwise rounding differs, and training amplifies that. At good grid points, the best
test metric then changes little, and must agree within a tolerance. At bad ones, where steps are too
large, it may end anywhere; these are detected by training again at learning rates that differ in
their last digits. A row of an older RNG version had different batches and noise: it is another
realization, and not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from oso_dp.metrics import METRICS

# Tolerances of the best test metric: accuracy in percentage points, errors as a fraction.
MAX_POINTS, MAX_FRACTION = 0.5, 0.02
# Relative changes of the learning rate, and the tolerance as a multiple of the largest change of
# the metric that they cause: an independent draw of the metric exceeds it with probability 1/350.
MOVES, TIMES = (2.0**-22, -(2.0**-22), 2.0**-21, -(2.0**-21)), 4.0
CONDITIONS = ("device", "torch_version", "precision")

EQUAL = "bit-identical"
WITHIN = "within the tolerance"
ROUNDING = "within the effect of the learning rate's last digits: sensitive to rounding"
CHANGED = "within the tolerance, but should be bit-identical: the code changed a result"
BEYOND = "BEYOND the tolerance"
NOT_EQUAL = "NOT EQUAL, though code and conditions are the same"
OTHER_RNG = "older RNG version, so another realization: not compared"
WRONG = (BEYOND, NOT_EQUAL)

_ORDER = ["step", "split"]


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one row; `stored` and `again` are the best test metrics, or None.

    A run whose status (finished, diverged) differs is beyond any tolerance.
    """

    run_id: str
    text: str
    stored: float | None
    again: float | None


def format_comparison(verdict: Comparison) -> str:
    """The comparison as text, with both metrics (as fractions)."""
    numbers = [verdict.stored, verdict.again]
    texts = ["no evaluation" if number is None else f"{number:.6g}" for number in numbers]
    return f"{verdict.text} (best stored {texts[0]}, again {texts[1]})"


def compare_run(
    row: Mapping[str, Any],
    evaluations: pd.DataFrame,
    new_row: Mapping[str, Any],
    new_evaluations: pd.DataFrame,
) -> Comparison:
    """Compare one run's stored row and evaluations with those of the rerun."""
    metric = (*evaluations["metric"], *new_evaluations["metric"], "accuracy")[0]
    best, best_again = (best_of(table) for table in (evaluations, new_evaluations))

    def verdict(text: str) -> Comparison:
        return Comparison(row["run_id"], text, best, best_again)

    if row["rng_version"] != new_row["rng_version"]:
        return verdict(OTHER_RNG)
    same_conditions = all(row[name] == new_row[name] for name in CONDITIONS)
    same_end = (row["status"], row["diverged_at"]) == (new_row["status"], new_row["diverged_at"])
    if same_end and are_equal(evaluations, new_evaluations):
        return verdict(EQUAL)
    if same_conditions and row["code_hash"] == new_row["code_hash"]:
        return verdict(NOT_EQUAL)
    if row["status"] != new_row["status"]:
        return verdict(BEYOND)
    if is_near(metric, best, best_again):
        return verdict(CHANGED if same_conditions else WITHIN)
    return verdict(BEYOND)


def explain_doubt(
    verdict: Comparison, row: Mapping[str, Any], moved: Sequence[tuple[str, float | None]]
) -> Comparison:
    """Check whether a row beyond the tolerance is sensitive to rounding.

    `moved`: status and best test metric of reruns at slightly changed learning rates. The row stays
    beyond the tolerance unless one of them has the row's status, and one changed by enough.
    """
    stored, again = verdict.stored, verdict.again
    ends = [(status, best is None) for status, best in moved]
    is_sensitive = (row["status"], stored is None) in ends
    if stored is not None and again is not None:
        changes = [abs(best - again) for _, best in moved if best is not None]
        is_sensitive &= abs(stored - again) <= TIMES * max(changes, default=0.0)
    return replace(verdict, text=ROUNDING) if is_sensitive else verdict


def best_of(evaluations: pd.DataFrame) -> float | None:
    """The best value on the test set."""
    test = evaluations[evaluations["split"] == "test"]
    if test.empty:
        return None
    metric = METRICS[test["metric"].iloc[0]]
    return float(test["value"].max() if metric.higher_is_better else test["value"].min())


def are_equal(evaluations: pd.DataFrame, others: pd.DataFrame) -> bool:
    """Whether two tables of evaluations are equal, except for columns that one of them lacks."""
    if any(table["class_accuracy"].isna().all() for table in (evaluations, others)):
        evaluations = evaluations.drop(columns="class_accuracy")  # of an older version
    both = [table.sort_values(_ORDER, ignore_index=True) for table in (evaluations, others)]
    values = [table[[*evaluations.columns.drop("run_id")]].astype(object) for table in both]
    first, second = (table.where(table.notna(), None) for table in values)
    return first.equals(second)


def is_near(metric: str, best: float | None, again: float | None) -> bool:
    """Whether two best values agree within the tolerance."""
    if best is None or again is None:
        return best is again
    if metric == "accuracy":
        return abs(best - again) <= MAX_POINTS / 100
    return abs(best - again) <= MAX_FRACTION * abs(best)
