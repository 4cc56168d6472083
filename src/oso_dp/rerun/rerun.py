"""Trains a random sample of stored runs again and compares them with their rows.

Results are bit-identical with the same code, device (CPU model, instructions, threads), torch and
precision. Otherwise rounding differs, and training amplifies that. At good grid points, the best
test metric then changes little, and must agree within a tolerance. At bad ones, where steps are too
large, it may end anywhere; these are detected by training again at learning rates that differ in
their last digits. A row of an older RNG version had different batches and noise: it is another
realization, and not compared.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.metrics import METRICS
from oso_dp.results.checks import records
from oso_dp.results.read import Results
from oso_dp.study.cohort import Cohort, PlannedCohort, Run, make_run
from oso_dp.training.job import run_job

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


_THREADS = re.compile(r"\((\d+) threads?\)$")  # in the column `device`


@dataclass(frozen=True)
class StoredRun:
    """A row that can be trained again, and its run."""

    row: Mapping[str, Any]
    cohort: PlannedCohort
    run: Run

    @property
    def seconds(self) -> float:
        return float(self.row["wall_seconds"] or 0.0)

    def __str__(self) -> str:
        return f"{self.run.run_id} {self.cohort.name} seed {self.run.seed}"


def select_repeatable(runs: pd.DataFrame) -> list[StoredRun]:
    """The rows of the table `runs` that can be trained again, in its order.

    Rows of user-defined data sets and with unseeded noise are left out.
    """
    repeatable = []
    for row in records(runs):
        cohort, run = make_run(row)
        if cohort.data_version is None and cohort.randomness == "seeded":
            repeatable.append(StoredRun(row, cohort, run))
    return repeatable


def order_by_random_sample(stored: Sequence[StoredRun], seed: int) -> list[StoredRun]:
    """All runs in a random order, which depends on the seed and not on the table's order."""
    by_id = sorted(stored, key=lambda run: run.run.run_id)
    return random.Random(seed).sample(by_id, len(by_id))


def verify(
    results: Results,
    order: Sequence[StoredRun],
    arrays_of: Callable[[Cohort], Arrays],
    seconds: float,
    clock: Callable[[], float],
) -> Iterator[tuple[StoredRun, Comparison]]:
    """Train runs again, in this order, as long as they are expected to fit into `seconds`.

    The first is always trained; a run that does not fit is skipped. `clock`: in seconds.
    """
    began, spent, expected = clock(), 0.0, 0.0
    for number, one in enumerate(order):
        pace = spent / expected if expected else 1.0  # relative to the stored times
        if number and clock() - began + pace * one.seconds > seconds:
            continue
        started = clock()
        recorded = results.evaluations[results.evaluations["run_id"] == one.run.run_id]
        yield one, _rerun(one, recorded, arrays_of(one.cohort))
        spent, expected = spent + clock() - started, expected + one.seconds


def _rerun(one: StoredRun, evaluations: pd.DataFrame, arrays: Arrays) -> Comparison:
    """Train a run again, on the number of threads of its row."""
    threads = _THREADS.search(str(one.row["device"]))
    before = torch.get_num_threads()
    torch.set_num_threads(int(threads[1]) if threads else 1)
    try:
        row, again = _train_again(one, arrays, evaluations.columns)
        verdict = compare_run(one.row, evaluations, row, again)
        if verdict.text != BEYOND:
            return verdict
        moved = [_train_again(one, arrays, evaluations.columns, 1 + move) for move in MOVES]
        return explain_doubt(
            verdict, one.row, [(row["status"], best_of(part)) for row, part in moved]
        )
    finally:
        torch.set_num_threads(before)


def _train_again(
    one: StoredRun, arrays: Arrays, columns: pd.Index, times: float = 1.0
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Row and evaluations of the run, at `times` its learning rate."""
    run = replace(one.run, learning_rate=one.run.learning_rate * times)
    with tempfile.TemporaryDirectory(prefix="oso-verify-") as folder:
        rows = run_job(one.cohort, [run], arrays, Path(folder))
    (row,) = rows.runs
    return row, pd.DataFrame(rows.evaluations, columns=columns)


def select_datasets(stored: Sequence[StoredRun], datasets: Sequence[str]) -> list[StoredRun]:
    """The runs of these data sets, or all if none is given; OsoError for one without runs."""
    known = sorted({one.cohort.dataset for one in stored})
    for name in datasets:
        if name not in known:
            raise OsoError(
                f"--dataset: {name}; has no run that can be trained again; must be one of "
                f"{', '.join(known) or 'none'}"
            )
    return [one for one in stored if not datasets or one.cohort.dataset in datasets]
