"""Rows that look like real ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores import options

from oso_dp.checkpoint import FINISHED_RUNS, save_checkpoint
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.schema import RUNS
from oso_dp.results.write import write_table

STEPS = 1172  # of ten epochs of 60,000 examples


def ledger(**row: Any) -> str:
    """What the mechanism writes for such a row."""
    steps = row["diverged_at"] if row["status"] == "diverged" else row["steps"]
    nu = 0.0 if row["epsilon"] is None else row["noise_multiplier"]
    sums = (SumQuery("clipped_gradient", nu),)
    second = row["query_noise_multiplier"]
    if second is not None:
        first = gradient_noise_multiplier(nu, second)
        sums = (SumQuery("clipped_gradient", first), SumQuery("clipped_direction", second))
    return Ledger(PoissonSampling(row["batch_size"] / row["examples"]), [(sums, steps)]).to_json()


def run_row(run_id: str, **other: Any) -> dict[str, Any]:
    known = {
        "run_id": run_id,
        "dataset": "mnist",
        "method": "online",
        "k": 9,
        "epsilon": 9.0,
        "delta": 1e-5,
        "search_accounting": "composition",
        "seed": 0,
        "learning_rate": 1.0,
        "threshold": 0.1,
        "noise_multiplier": 0.815,
        "sampling": "poisson",
        "examples": 60000,
        "batch_size": 512,
        "epochs": 10,
        "steps": STEPS,
        "precision": "float32",
        "rng_version": 1,
        "status": "finished",
    }
    row = {**dict.fromkeys(RUNS.names), **options(), **known, **other}
    if row["epsilon"] is None and row["method"] == "no_dp":
        row["noise_multiplier"] = None
    return row if "ledger" in other else {**row, "ledger": ledger(**row)}


def evaluation_row(run_id: str, step: int = STEPS, value: float = 0.9) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "step": step,
        "split": "test",
        "metric": "accuracy",
        "value": value,
        "loss": 0.3,
        "threshold": 0.1,
        "learning_rate": 1.0,
        "fraction_clipped": None,
        "class_accuracy": None,
    }


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write a results folder with these runs; each has two evaluations."""

    def write_folder(name: str, *run_ids: str, value: float = 0.9) -> Path:
        folder = tmp_path / name
        rows = [evaluation_row(run_id, step, value) for run_id in run_ids for step in (50, STEPS)]
        write_table(folder / "evaluations.parquet", "evaluations", rows)
        write_table(folder / "runs.parquet", "runs", [run_row(run_id) for run_id in run_ids])
        return folder

    return write_folder


COHORTS = {
    "r1": {},
    "r2": {"epsilon": 3.0, "noise_multiplier": 3.0},
    "r3": {"method": "no_dp", "epsilon": None, "delta": None},
    "r4": {"momentum": 0.5},  # in none of these names of files do the two differ:
    "r5": {"precision": "bfloat16"},
    "r6": options(model="other"),
    "r7": {"search_accounting": "random_stopping"},
}


def part(folder: Path, run_id: str, **other: Any) -> Path:
    """A folder with one run, of whichever cohort."""
    write_table(folder / "evaluations.parquet", "evaluations", [evaluation_row(run_id)])
    write_table(folder / "runs.parquet", "runs", [run_row(run_id, **other)])
    return folder


def unfinished(progress: Path, run_id: str, **other: Any) -> Path:
    """What a killed job leaves that has finished one run."""
    rows = {"runs": [run_row(run_id, **other)], "evaluations": [evaluation_row(run_id)]}
    save_checkpoint(progress / FINISHED_RUNS, "this job", rows)
    return progress / FINISHED_RUNS


@pytest.fixture
def parts(tmp_path) -> list[Path]:
    return [part(tmp_path / name, name, **other) for name, other in COHORTS.items()]
