"""Whether a run that was trained again came to what its row says.

Equal conditions give equal bits: the same code, device (a CPU's model and its threads), torch and
precision. Elsewhere sums are rounded in another order, and a training carries that on. At a good
point of a grid the best test metric then hardly moves; at a bad one, where each step jumps far, it
ends as far away as another seed would. So it may differ by a tolerance, or by the spread of the
stored seeds, where that is more. A row that was drawn by an older scheme of streams had other
batches and other noise: it is another realisation, which is shown and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from oso_dp.metrics import METRICS

# Of the best test metric: points of accuracy, and a share of an error.
POINTS, SHARE = 0.5, 0.02
DEVIATIONS = 3.0  # of the best test metric over the stored seeds of a point
CONDITIONS = ("device", "torch_version", "precision")

EQUAL = "equal to the bit"
WITHIN = "within the tolerance"
SPREAD = "within the spread of its seeds: a run that rounding decides"
CHANGED = "within the tolerance, where the bits should be equal: the code changed a result"
BEYOND = "BEYOND the tolerance"
NOT_EQUAL = "NOT EQUAL, though code and conditions are the same"
OTHER_DRAWS = "older streams, so another realisation: not judged"
WRONG = (BEYOND, NOT_EQUAL)

_ORDER = ["step", "split"]


@dataclass(frozen=True)
class Verdict:
    """What became of one row; `stored` and `again` are the best test metrics, None: there is none.

    A run that ended otherwise (finished, diverged) is beyond any tolerance.
    """

    run_id: str
    text: str
    stored: float | None
    again: float | None


def line(verdict: Verdict) -> str:
    """The verdict in words, with the numbers that it rests on; metrics as fractions."""
    numbers = [verdict.stored, verdict.again]
    said = ["no evaluation" if number is None else f"{number:.6g}" for number in numbers]
    return f"{verdict.text} (best stored {said[0]}, again {said[1]})"


def judge(
    row: Mapping[str, Any],
    evaluations: pd.DataFrame,
    new_row: Mapping[str, Any],
    new_evaluations: pd.DataFrame,
    deviation: float = 0.0,
) -> Verdict:
    """Of one run: its row and its evaluations, as stored and as they came out again.

    deviation: of the best test metric over the stored seeds of this run's point; 0: not known.
    """
    metric = (*evaluations["metric"], *new_evaluations["metric"], "accuracy")[0]
    best, best_again = (best_of(part, metric) for part in (evaluations, new_evaluations))

    def verdict(text: str) -> Verdict:
        return Verdict(row["run_id"], text, best, best_again)

    if row["streams"] != new_row["streams"]:
        return verdict(OTHER_DRAWS)
    alike = all(row[name] == new_row[name] for name in CONDITIONS)
    same_end = (row["status"], row["diverged_at"]) == (new_row["status"], new_row["diverged_at"])
    if same_end and equal(evaluations, new_evaluations):
        return verdict(EQUAL)
    if alike and row["code_hash"] == new_row["code_hash"]:
        return verdict(NOT_EQUAL)
    if row["status"] != new_row["status"]:
        return verdict(BEYOND)
    if near(metric, best, best_again):
        return verdict(CHANGED if alike else WITHIN)
    apart = None if best is None or best_again is None else abs(best - best_again)
    return verdict(SPREAD if apart is not None and apart <= DEVIATIONS * deviation else BEYOND)


def best_of(evaluations: pd.DataFrame, metric: str) -> float | None:
    """The best value on the test set."""
    values = evaluations.loc[evaluations["split"] == "test", "value"]
    if values.empty:
        return None
    return float(values.max() if METRICS[metric].higher_is_better else values.min())


def equal(evaluations: pd.DataFrame, others: pd.DataFrame) -> bool:
    """Whether all numbers of two tables of evaluations are the same."""
    both = [part.sort_values(_ORDER, ignore_index=True) for part in (evaluations, others)]
    numbers = [part[[*evaluations.columns.drop("run_id")]].astype(object) for part in both]
    first, second = (part.where(part.notna(), None) for part in numbers)
    return first.equals(second)


def near(metric: str, best: float | None, again: float | None) -> bool:
    """Whether two best values are within the tolerance of each other."""
    if best is None or again is None:
        return best is again
    if metric == "accuracy":
        return abs(best - again) <= POINTS / 100
    return abs(best - again) <= SHARE * abs(best)
