"""Writes the results of diagnostics, with their provenance, to CSV files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import oso_dp
from oso_dp.analysis.side_measurements import HASHES
from oso_dp.diagnostics.cosine import Similarity
from oso_dp.diagnostics.signs import StepSigns
from oso_dp.diagnostics.update_norms import UpdateNorms
from oso_dp.diagnostics.writer_series import SeriesAccuracy
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write
from oso_dp.results.write import writing
from oso_dp.study.cohort import Cohort, Run
from oso_dp.training.provenance import code_hash, device_name
from oso_dp.training.task import StudyTask


def write_similarities(
    path: Path, cohort: Cohort, task: StudyTask, similarities: Sequence[Similarity]
) -> None:
    """Write one row per step, noise and threshold, with the run and its provenance."""
    run = cohort.runs[0]
    run_columns = {
        **{name: getattr(cohort, name) for name in ("dataset", "model", "method", "k", "epsilon")},
        **{name: getattr(run, name) for name in ("run_id", "seed", "learning_rate")},
    }
    source = {
        "device": device_name(task.device),
        "torch_version": torch.__version__.partition("+")[0],
        "package_version": oso_dp.__version__,
        "code_hash": code_hash(),
    }
    with writing(path):
        _write(path, pd.DataFrame([run_columns | asdict(row) | source for row in similarities]), 6)


def write_signs(path: Path, cohort: Cohort, run: Run, steps: Sequence[StepSigns]) -> None:
    """Write one row per step, with the run's id and the code hash.

    Rows of other runs in the file are kept. OsoError if the file is another kind of table.
    """
    run_columns = {name: getattr(cohort, name) for name in ("dataset", "method", "k", "epsilon")}
    _add_run(path, run_columns, run, steps, "oso diagnose signs")


def write_update_norms(path: Path, cohort: Cohort, run: Run, norms: Sequence[UpdateNorms]) -> None:
    """Write one row per measured step and layer; see `write_signs`."""
    names = ("dataset", "model", "method", "k", "epsilon")
    run_columns = {name: getattr(cohort, name) for name in names} | {"quantile": run.quantile}
    _add_run(path, run_columns, run, norms, "oso diagnose updates")


def write_series(path: Path, cohort: Cohort, run: Run, rows: Sequence[SeriesAccuracy]) -> None:
    """Write one row per series; see `write_signs`."""
    names = ("dataset", "model", "method", "k", "epsilon")
    run_columns = {name: getattr(cohort, name) for name in names}
    run_columns |= {"seed": run.seed, "learning_rate": run.learning_rate}
    _add_run(path, run_columns, run, rows, "oso diagnose series")


def _add_run(
    path: Path,
    run_columns: dict[str, Any],
    run: Run,
    rows: Sequence[StepSigns | UpdateNorms | SeriesAccuracy],
    command: str,
) -> None:
    run_columns |= {"run_id": run.run_id, "code_hash": code_hash()}
    table = pd.DataFrame([run_columns | asdict(row) for row in rows])
    with writing(path):
        if path.exists():
            stored = _stored(path, list(table), command)
            table = pd.concat([stored[stored["run_id"] != run.run_id], table])
        _write(path, table, 4)


def _stored(path: Path, columns: list[str], command: str) -> pd.DataFrame:
    try:
        stored = pd.read_csv(path, dtype=HASHES)
    except (OSError, ValueError) as error:
        raise OsoError(f"{path}: not a CSV table ({' '.join(str(error).split())})") from None
    if list(stored) != columns:
        raise OsoError(
            f"{path}: another kind of table; must be written by `{command}`, or not exist"
        )
    return stored


def _write(path: Path, table: pd.DataFrame, digits: int) -> None:
    """Write measured numbers with `digits` significant digits, but epsilon exactly."""
    exact = table["epsilon"].map(lambda epsilon: f"{epsilon:.15g}", na_action="ignore")
    table = table.assign(epsilon=exact.astype(object))
    text = table.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n")
    with atomic_write(path) as file:
        file.write(text.encode())
