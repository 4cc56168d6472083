"""A sample of stored runs, and one of them trained again."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.metrics import METRICS
from oso_dp.results.read import Results
from oso_dp.study.cohort import Cohort, PlannedCohort, Run
from oso_dp.study.identity import COHORT, POINT
from oso_dp.study.of_row import run_of_row
from oso_dp.training.job import run_job
from oso_dp.verification.verdict import Verdict, judge

_THREADS = re.compile(r"\((\d+) threads?\)$")  # of a CPU's name in the column `device`


@dataclass(frozen=True)
class Stored:
    """A row that can be trained again: its run, and how long that took the first time."""

    row: Mapping[str, Any]
    cohort: PlannedCohort
    run: Run

    @property
    def seconds(self) -> float:
        return float(self.row["wall_seconds"] or 0.0)

    def __str__(self) -> str:
        return f"{self.run.run_id} {self.cohort.name} seed {self.run.seed}"


def repeatable(runs: pd.DataFrame) -> list[Stored]:
    """Of the table `runs` those rows whose values give their identity, in its order.

    Left out are rows of the format's first version that nobody can explain, of a user's own data,
    which are not here, and of noise that was never seeded.
    """
    known = []
    whole = runs.astype(object).where(runs.notna(), None)
    for row in whole.to_dict("records"):
        if row["settings"] is None:
            continue
        cohort, run = run_of_row({str(name): value for name, value in row.items()})
        if cohort.data_version is None and cohort.randomness == "seeded":
            known.append(Stored(row, cohort, run))
    return known


def sample(stored: Sequence[Stored], seed: int) -> list[Stored]:
    """All of them, in a random order that the seed decides; not the order of the table."""
    by_identity = sorted(stored, key=lambda one: one.run.run_id)
    return random.Random(seed).sample(by_identity, len(by_identity))


def verify(
    results: Results,
    order: Sequence[Stored],
    arrays_of: Callable[[Cohort], Arrays],
    seconds: float,
    clock: Callable[[], float],
) -> Iterator[tuple[Stored, Verdict]]:
    """Train as many of these again, in this order, as are expected to fit into the time.

    At least one: the first. What does not fit any more is passed over. `clock`: in seconds.
    """
    began, spent, expected = clock(), 0.0, 0.0
    spread = deviations(results)
    for number, one in enumerate(order):
        pace = spent / expected if expected else 1.0  # this machine against those of before
        if number and clock() - began + pace * one.seconds > seconds:
            continue
        started = clock()
        mine = results.evaluations[results.evaluations["run_id"] == one.run.run_id]
        yield one, _again(one, mine, arrays_of(one.cohort), spread.get(one.run.run_id, 0.0))
        spent, expected = spent + clock() - started, expected + one.seconds


def deviations(results: Results) -> dict[str, float]:
    """By run: of the best test metrics over the seeds of its point (n - 1); 0 of a single one."""
    test = results.evaluations[results.evaluations["split"] == "test"]
    sign = test["metric"].map(
        {name: 1 if m.higher_is_better else -1 for name, m in METRICS.items()}
    )
    best = (test["value"] * sign).groupby(test["run_id"]).max()
    runs = results.runs.set_index("run_id")
    points = [runs[name] for name in (*COHORT, "precision", "settings", *POINT)]
    of_point = best.reindex(runs.index).groupby(points, dropna=False)
    spread: dict[str, float] = of_point.transform("std").fillna(0.0).to_dict()
    return spread


def _again(one: Stored, evaluations: pd.DataFrame, arrays: Arrays, deviation: float) -> Verdict:
    """On as many threads as the first time, where its row says so."""
    said = _THREADS.search(one.row["device"])
    before = torch.get_num_threads()
    torch.set_num_threads(int(said[1]) if said else 1)
    try:
        with tempfile.TemporaryDirectory(prefix="oso-verify-") as folder:
            rows = run_job(one.cohort, [one.run], arrays, Path(folder))
    finally:
        torch.set_num_threads(before)
    (row,) = rows.runs
    new_evaluations = pd.DataFrame(rows.evaluations, columns=list(evaluations.columns))
    return judge(one.row, evaluations, row, new_evaluations, deviation)


def of_datasets(stored: Sequence[Stored], datasets: Sequence[str]) -> list[Stored]:
    """Those of these data sets, or of all; OsoError for one of which there is none."""
    known = sorted({one.cohort.dataset for one in stored})
    for name in datasets:
        if name not in known:
            raise OsoError(
                f"--dataset {name}: no stored run of it can be trained again; allowed are "
                f"{', '.join(known) or 'none'}"
            )
    return [one for one in stored if not datasets or one.cohort.dataset in datasets]
