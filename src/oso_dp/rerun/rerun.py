"""Selects a random sample of stored runs and trains them again."""

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
from oso_dp.rerun.rerun import BEYOND, MOVES, Comparison, best_of, compare_run, explain_doubt
from oso_dp.results.checks import records
from oso_dp.results.read import Results
from oso_dp.study.cohort import Cohort, PlannedCohort, Run
from oso_dp.study.cohort import make_run
from oso_dp.training.job import run_job

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

    Rows of schema version 1 without run options, of user-defined data sets, and with unseeded noise
    are left out.
    """
    repeatable = []
    for row in records(runs):
        if row["model"] is None:
            continue
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
