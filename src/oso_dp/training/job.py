"""One training job: the runs of a cohort, or of a shard of it, as rows of the results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

import oso_dp
from oso_dp.checkpoint import (
    FINISHED_RUNS,
    load_checkpoint,
    quarantine_if_corrupt,
    read_finished_runs,
    save_checkpoint,
)
from oso_dp.data.arrays import Arrays
from oso_dp.data.plugins import make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.privacy.promise import USER
from oso_dp.privacy.rng_sources import RNG_VERSION
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.identity import POINT
from oso_dp.training.evaluate import Outcome
from oso_dp.training.loop import train
from oso_dp.training.oom_backoff import limit_parallel_runs
from oso_dp.training.provenance import code_hash, commit, device_name
from oso_dp.training.study_problem import build_user_network
from oso_dp.training.task import StudyTask


@dataclass
class ResultRows:
    """Rows of the tables `runs` and `evaluations`."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def make_task(cohort: PlannedCohort, device: str = "cpu") -> StudyTask:
    """The training task that the cohort's runs share."""
    return StudyTask(
        method=cohort.make_method(),
        model=cohort.model,
        metric=make_dataset_info(cohort.dataset, cohort.model).metric,
        noise_multiplier=cohort.noise_multiplier,
        batch_size=cohort.batch_size,
        steps=cohort.steps,
        evaluate_every=cohort.evaluate_every,
        final_activation=cohort.final_activation,
        loss=cohort.loss,
        device=device,
        randomness=cohort.randomness,
        delta=None if cohort.delta is None else cohort.delta / cohort.budgeted_runs,
        schedule=cohort.schedule,
        averaging=cohort.averaging,
        precision=cohort.precision,
        network=build_user_network(cohort),
        local=cohort.local_training,
    )


def run_job(
    cohort: PlannedCohort,
    runs: Sequence[Run],
    arrays: Arrays,
    folder: Path,
    device: str = "cpu",
    parallel_runs: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, step: None,
    stored: Collection[str] = (),
) -> ResultRows:
    """Train runs of a cohort and return their rows.

    Args:
        cohort: The planned cohort.
        runs: Which of its runs to train.
        arrays: The data.
        folder: For checkpoints (`rows.pt`, `state.pt`). A killed job resumes from them if runs,
            code, data, noise and type of device are the same; others are not used.
        device: torch device.
        parallel_runs: Number of runs to train at once; fewer after running out of memory.
        on_progress: Called with the number of finished runs and the step of the running ones.
        stored: Runs that are kept elsewhere.

    Raises:
        OsoError: If the data have another number of examples than planned, or are not public and
            the folder has finished runs that would be lost.
    """
    unit, records = cohort.privacy_unit, len(arrays.train_inputs)
    if unit == USER:
        records = 0 if arrays.train_users is None else len(np.unique(arrays.train_users))
    if records != cohort.examples:  # the noise was calibrated for another n
        raise OsoError(
            f"{cohort.name}: data have {records} training {unit.plural}; must be "
            f"{cohort.examples}, as planned"
        )
    task = make_task(cohort, device)
    code = code_hash()
    ids = [run.run_id for run in runs]
    # Random streams of an accelerator and of the CPU differ, so a run must not mix them.
    device_type = torch.device(task.device).type
    fingerprint = _fingerprint(code, arrays.digest, str(cohort.noise_multiplier), device_type, *ids)
    if not cohort.is_public:
        _check_kept(folder / FINISHED_RUNS, fingerprint, stored)
    rows = ResultRows()
    with quarantine_if_corrupt(folder / FINISHED_RUNS):
        if content := load_checkpoint(folder / FINISHED_RUNS, fingerprint):
            kept = ResultRows(list(content["runs"]), list(content["evaluations"]))
            if [row["run_id"] for row in kept.runs] != ids[: len(kept.runs)]:
                raise ValueError("its runs are not the first of this job")
            rows = kept
    with limit_parallel_runs(folder, parallel_runs) as at_once:
        while len(rows.runs) < len(runs):
            done = len(rows.runs)
            group = runs[done : done + at_once]
            outcomes = train(
                task,
                group,
                arrays,
                checkpoint=folder / "state.pt",
                fingerprint=_fingerprint(fingerprint, *(run.run_id for run in group)),
                on_progress=lambda step, done=done: on_progress(done, step),  # type: ignore[misc]
            )
            for run, outcome in zip(group, outcomes, strict=True):
                rows.runs.append(make_row(task, cohort, run, outcome, code))
                rows.evaluations += outcome.evaluations
            save_checkpoint(folder / FINISHED_RUNS, fingerprint, dict(vars(rows)))
            (folder / "state.pt").unlink(missing_ok=True)
    return rows


def finished_runs(checkpoint: Path) -> list[str]:
    """The runs that a job has finished; OsoError for a damaged file."""
    return [row["run_id"] for row in read_finished_runs(checkpoint)["runs"]]


def check_not_finished_beside(runs: Collection[str], output: Path) -> None:
    """OsoError if a job beside this one has finished one of its runs: its epsilon is spent.

    So it is after the runs were divided into other jobs (`runs_per_job`).
    """
    for checkpoint in sorted(output.absolute().parent.glob(f"*/progress/{FINISHED_RUNS}")):
        beside = checkpoint.parents[1]
        if beside != output.absolute() and (twice := {*runs} & {*finished_runs(checkpoint)}):
            raise OsoError(
                f"{beside}: has finished {len(twice)} of this job's runs on private data; "
                "their epsilon is spent; divide the runs into jobs as before "
                "(runs_per_job), or collect them and name their --store"
            )


def _check_kept(checkpoint: Path, fingerprint: str, stored: Collection[str]) -> None:
    """OsoError if the checkpoint has finished runs that are neither resumed nor stored."""
    lost = {*finished_runs(checkpoint)} - {*stored}
    if lost and load_checkpoint(checkpoint, fingerprint) is None:
        raise OsoError(
            f"{checkpoint}: has {len(lost)} finished runs on private data, of another "
            "job, code, data file or device; their epsilon is spent; finish that job as it was "
            "begun, or collect its runs and name their --store"
        )


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_row(
    task: StudyTask, cohort: PlannedCohort, run: Run, outcome: Outcome, code: str
) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        **cohort.columns,
        "seed": run.seed,
        **{name: getattr(run, name) for name in POINT},
        "noise_multiplier": cohort.noise_multiplier if cohort.is_private else None,
        "query_noise_multiplier": cohort.query_noise_multiplier,
        "sampling": PoissonSampling.name,
        "steps": cohort.steps,
        "rng_version": RNG_VERSION,
        "status": outcome.status,
        "diverged_at": outcome.diverged_at,
        "device": device_name(task.device),
        "commit": commit(),
        "torch_version": torch.__version__.partition("+")[0],
        "package_version": oso_dp.__version__,
        "code_hash": code,
        # A step's time depends on its batch size, which is private.
        "wall_seconds": outcome.wall_seconds if cohort.is_public else None,
        "ledger": outcome.ledger if cohort.is_public else _name_training(outcome.ledger),
    }


def _name_training(ledger: str) -> str:
    """The ledger with a random name of its training.

    A run that is trained twice is released twice, also if both trainings diverge before their first
    evaluation; by the names, `oso collect` tells that from a part that is collected again.
    """
    return json.dumps({**json.loads(ledger), "training": uuid4().hex})
