"""Whether a run that was trained again came to what its row says.

Equal conditions give equal bits: the same code, device (a CPU's model, instructions, threads),
torch and precision. Elsewhere sums are rounded in another order, and a training carries that on.
At a good point of a grid the best test metric then hardly moves, and may differ by a tolerance. At
a bad one, where each step jumps far, it may end anywhere. Whether a row is such a one is measured:
the run is trained again at learning rates that differ in their last digits. A row that was drawn
by an older scheme of streams had other batches and other noise: it is another realisation, which
is shown and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from oso_dp.metrics import METRICS

# Of the best test metric: points of accuracy, and a share of an error.
POINTS, SHARE = 0.5, 0.02
# Of what the last digits of the learning rate, moved by these shares, change at most: of a best
# metric that is as good as drawn anew each time, one in 350 is farther away.
MOVES, TIMES = (2.0**-22, -(2.0**-22), 2.0**-21, -(2.0**-21)), 4.0
CONDITIONS = ("device", "torch_version", "precision")

EQUAL = "equal to the bit"
WITHIN = "within the tolerance"
ROUNDING = "within what the last digits of its learning rate change: a run that rounding decides"
CHANGED = "within the tolerance, where the bits should be equal: the code changed a result"
BEYOND = "BEYOND the tolerance"
NOT_EQUAL = "NOT EQUAL, though code and conditions are the same"
OTHER_RNG = "older streams, so another realisation: not judged"
WRONG = (BEYOND, NOT_EQUAL)

_ORDER = ["step", "split"]


@dataclass(frozen=True)
class Comparison:
    """What became of one row; `stored` and `again` are the best test metrics, None: there is none.

    A run that ended otherwise (finished, diverged) is beyond any tolerance.
    """

    run_id: str
    text: str
    stored: float | None
    again: float | None


def format_comparison(verdict: Comparison) -> str:
    """The verdict in words, with the numbers that it rests on; metrics as fractions."""
    numbers = [verdict.stored, verdict.again]
    texts = ["no evaluation" if number is None else f"{number:.6g}" for number in numbers]
    return f"{verdict.text} (best stored {texts[0]}, again {texts[1]})"


def compare_run(
    row: Mapping[str, Any],
    evaluations: pd.DataFrame,
    new_row: Mapping[str, Any],
    new_evaluations: pd.DataFrame,
) -> Comparison:
    """Of one run: its row and its evaluations, as stored and as they came out again."""
    metric = (*evaluations["metric"], *new_evaluations["metric"], "accuracy")[0]
    best, best_again = (best_of(part) for part in (evaluations, new_evaluations))

    def verdict(text: str) -> Comparison:
        return Comparison(row["run_id"], text, best, best_again)

    if row["rng_version"] != new_row["rng_version"]:
        return verdict(OTHER_RNG)
    alike = all(row[name] == new_row[name] for name in CONDITIONS)
    same_end = (row["status"], row["diverged_at"]) == (new_row["status"], new_row["diverged_at"])
    if same_end and are_equal(evaluations, new_evaluations):
        return verdict(EQUAL)
    if alike and row["code_hash"] == new_row["code_hash"]:
        return verdict(NOT_EQUAL)
    if row["status"] != new_row["status"]:
        return verdict(BEYOND)
    if is_near(metric, best, best_again):
        return verdict(CHANGED if alike else WITHIN)
    return verdict(BEYOND)


def explain_doubt(
    verdict: Comparison, row: Mapping[str, Any], moved: Sequence[tuple[str, float | None]]
) -> Comparison:
    """Of a row beyond the tolerance, once its run was trained with other last digits.

    moved: how each of those ended (the row's `status`), and its best test metric, as in `Verdict`.
    It stays beyond unless one of them ended as the row did, and one was moved far enough.
    """
    stored, again = verdict.stored, verdict.again
    ends = [(status, best is None) for status, best in moved]
    decides = (row["status"], stored is None) in ends
    if stored is not None and again is not None:
        changes = [abs(best - again) for _, best in moved if best is not None]
        decides &= abs(stored - again) <= TIMES * max(changes, default=0.0)
    return replace(verdict, text=ROUNDING) if decides else verdict


def best_of(evaluations: pd.DataFrame) -> float | None:
    """The best value on the test set."""
    test = evaluations[evaluations["split"] == "test"]
    if test.empty:
        return None
    metric = METRICS[test["metric"].iloc[0]]
    return float(test["value"].max() if metric.higher_is_better else test["value"].min())


def are_equal(evaluations: pd.DataFrame, others: pd.DataFrame) -> bool:
    """Whether all numbers of two tables of evaluations are the same, as far as both hold them."""
    if any(part["class_accuracy"].isna().all() for part in (evaluations, others)):
        evaluations = evaluations.drop(columns="class_accuracy")  # of an older version
    both = [part.sort_values(_ORDER, ignore_index=True) for part in (evaluations, others)]
    numbers = [part[[*evaluations.columns.drop("run_id")]].astype(object) for part in both]
    first, second = (part.where(part.notna(), None) for part in numbers)
    return first.equals(second)


def is_near(metric: str, best: float | None, again: float | None) -> bool:
    """Whether two best values are within the tolerance of each other."""
    if best is None or again is None:
        return best is again
    if metric == "accuracy":
        return abs(best - again) <= POINTS / 100
    return abs(best - again) <= SHARE * abs(best)
