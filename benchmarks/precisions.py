"""Effect of low precision on results: pairs of the same run in float32 and bfloat16.

    make bench-precision  # the pairs below, from build/data; resumes after an interruption
    make bench-precision PAIRS='ag_news_partial mnist'  # only these data sets

Both runs of a pair start from the same weights and use the same batches and noise: the random
streams use the float32 run's identity for both. Neither run is stored in the results, where the two
precisions are different runs. `results/precisions.csv` has a row for each pair; the output is the
mean difference of the best test value by method, with Student's 95 % interval.
"""

import argparse
import csv
import hashlib
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from csv_file import write_csv
from scipy.special import stdtrit

from oso_dp.data.arrays import Arrays, load_arrays
from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError
from oso_dp.metrics import is_higher_better
from oso_dp.results.read import read_results
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.config import load_config
from oso_dp.study.plan import make_plan
from oso_dp.training.evaluate import Outcome
from oso_dp.training.job import make_task
from oso_dp.training.loop import train
from oso_dp.training.provenance import code_hash, commit, device_name
from oso_dp.training.task import StudyTask

REPO = Path(__file__).resolve().parents[1]
OUTPUT = REPO / "benchmarks" / "results" / "precisions.csv"
PRECISIONS = ("float32", "bfloat16")
EPSILON = 3.0
MOST_NOISE = ("online", "fixed_threshold")  # the smallest grid's noise, and the largest's


@dataclass(frozen=True)
class Choice:
    """Which runs of a study are done in pairs."""

    config: str
    dataset: str
    k: int
    seeds: int
    methods: tuple[str, ...] | None = None  # None: each of the study's


CHOICES = (
    Choice("paper/ag_news_subset", "ag_news_partial", 5, 3),
    Choice("extensions/ag_news_subset_other_methods", "ag_news_partial", 5, 3),
    Choice("paper/best_points", "mnist", 9, 3, MOST_NOISE),
    Choice("paper/best_points", "fashion_mnist", 9, 1, MOST_NOISE),
)


@dataclass(frozen=True)
class Pair:
    """One run of a plan, to be done in both precisions."""

    cohort: PlannedCohort
    run: Run


def pairs(choice: Choice, stored: pd.DataFrame) -> list[Pair]:
    """Of each method the best point by the stored runs; where none is stored, the grid's middle."""
    config = load_config(REPO / "config" / f"{choice.config}.yaml")
    methods = {
        name: settings
        for name, settings in config.methods.items()
        if choice.methods is None or name in choice.methods
    }
    change = {"epsilons": [EPSILON], "precision": PRECISIONS[0]}
    section = config.datasets[choice.dataset].model_copy(update=change)
    plan = make_plan(
        config.model_copy(
            update={
                "datasets": {choice.dataset: section},
                "methods": methods,
                "values_per_axis": [choice.k],
                "seeds": list(range(choice.seeds)),
            }
        )
    )
    found = []
    for cohort in plan.cohorts:
        points = list(dict.fromkeys(run.point for run in cohort.runs))
        values = {
            point: stored.reindex([run.run_id for run in cohort.runs if run.point == point])
            for point in points
        }
        means = {point: column.mean() for point, column in values.items()}
        known = {point: mean for point, mean in means.items() if not np.isnan(mean)}
        best = max(known, key=lambda point: known[point]) if known else points[len(points) // 2]
        found += [Pair(cohort, run) for run in cohort.runs if run.point == best]
    return found


def goodness() -> pd.Series:
    """The best test value of each stored run, by run_id; larger is better."""
    table = read_results(REPO / "results").evaluations
    table = table[table["split"] == "test"]
    sign = np.where([is_higher_better(metric) for metric in table["metric"]], 1.0, -1.0)
    return (table["value"] * sign).groupby(table["run_id"]).max()


def run_pair(pair: Pair, data: Path) -> dict[str, Any]:
    """One row: both runs' best and last test values, and what they took."""
    torch.set_num_threads(1)
    arrays, _ = load_arrays(data / pair.cohort.data_file)
    cohort, run = pair.cohort, pair.run
    task = make_task(cohort)
    row: dict[str, Any] = {
        **{name: getattr(cohort, name) for name in ("dataset", "method", "k", "epsilon")},
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "threshold": run.threshold,
        "quantile": run.quantile,
        "identity": run.run_id,
        "metric": task.metric,
    }
    for precision in PRECISIONS:
        checkpoint = REPO / "build" / "precisions" / f"{run.run_id}.{precision}.pt"
        print(f"{cohort.name} seed {run.seed} {precision}", flush=True)
        outcome = train_one(replace(task, precision=precision), run, arrays, checkpoint)
        values = [each["value"] for each in outcome.evaluations if each["split"] == "test"]
        best = max if is_higher_better(task.metric) else min
        row |= {
            f"{precision}_status": outcome.status,
            f"{precision}_best": best(values, default=None),
            f"{precision}_last": values[-1] if values else None,
            f"{precision}_seconds": round(outcome.wall_seconds, 1),
        }
    return row | {"device": device_name(task.device), "commit": commit(), "code_hash": code_hash()}


def train_one(task: StudyTask, run: Run, arrays: Arrays, checkpoint: Path) -> Outcome:
    """Train a run, from its checkpoint if it was interrupted."""
    facts = f"{code_hash()} {arrays.digest} {task.noise_multiplier}"
    fingerprint = hashlib.sha256(facts.encode()).hexdigest()
    (outcome,) = train(task, [run], arrays, checkpoint=checkpoint, fingerprint=fingerprint)
    checkpoint.unlink(missing_ok=True)
    return outcome


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    write_csv(path, sorted(rows, key=lambda row: (row["dataset"], row["method"], int(row["seed"]))))


def summary(rows: list[dict[str, Any]]) -> str:
    """bfloat16 minus float32 of the best test value, times 100; + is better in bfloat16."""
    table = pd.DataFrame(rows)
    lines = ["| data set | method | pairs | difference, 95 % |", "|---|---|---|---|"]
    for dataset, mine in table.groupby("dataset"):
        for method, part in [*mine.groupby("method"), ("all", mine)]:
            values = part[["float32_best", "bfloat16_best"]].astype(float)
            sign = 1 if is_higher_better(DATASETS[str(dataset)].metric) else -1
            differences = 100 * sign * (values["bfloat16_best"] - values["float32_best"]).dropna()
            n = len(differences)
            text = f"{differences.mean():+.3f}"
            if n > 1:
                half = stdtrit(n - 1, 0.975) * differences.std() / np.sqrt(n)
                text += f" ± {half:.3f}"
            lines.append(f"| {dataset} | {method} | {n} | {text} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("datasets", nargs="*", help="only these")
    parser.add_argument("--data", type=Path, default=REPO / "build" / "data")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    try:
        rows, stored = read(options.output), goodness()
        known = {row["identity"] for row in rows}
        todo = [
            pair
            for choice in CHOICES
            if not options.datasets or choice.dataset in options.datasets
            for pair in pairs(choice, stored)
            if pair.run.run_id not in known
        ]
        with ProcessPoolExecutor(
            options.processes, mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            for future in as_completed(pool.submit(run_pair, pair, options.data) for pair in todo):
                rows.append(future.result())
                write(options.output, rows)
    except OsoError as error:
        print(f"precisions: error: {error}", file=sys.stderr)
        return 2
    print(summary(rows) if rows else "nothing was asked for")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
