"""One job of the study: the runs of a cohort, or of a shard of it, as rows of the results."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import oso_dp
from oso_dp.data.arrays import Arrays
from oso_dp.data.plugins import make_dataset_info
from oso_dp.errors import OsoError
from oso_dp.privacy.rng_sources import RNG_VERSION
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.training.checkpoint import load_checkpoint, quarantine_if_corrupt, save_checkpoint
from oso_dp.training.loop import train
from oso_dp.training.oom_backoff import limit_parallel_runs
from oso_dp.training.outcome import Outcome
from oso_dp.training.provenance import code_hash, commit, device_name
from oso_dp.training.task import StudyTask
from oso_dp.training.user_task import build_user_network


@dataclass
class ResultRows:
    """Rows of the tables `runs` and `evaluations`."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def make_task(cohort: PlannedCohort, device: str = "cpu") -> StudyTask:
    """What the cohort's runs have in common."""
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
        schedule=cohort.schedule,
        averaging=cohort.averaging,
        precision=cohort.precision,
        network=build_user_network(cohort),
    )


def run_job(
    cohort: PlannedCohort,
    runs: Sequence[Run],
    arrays: Arrays,
    folder: Path,
    device: str = "cpu",
    parallel_runs: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, step: None,
    clock: Callable[[], float] = time.perf_counter,
) -> ResultRows:
    """Train `runs` of the cohort, so many at once as memory allows, and return their rows.

    Progress is kept in `folder` (`rows.pt` and `state.pt`), so that a killed job goes on with the
    same runs, code, data and noise where it was; anything else there is not used.
    `on_progress` is told the number of runs done and the step of those at work; `clock` says what
    time counts as theirs.
    """
    if len(arrays.train_inputs) != cohort.examples:  # the noise is that of another data set
        raise OsoError(
            f"{cohort.name}: planned for {cohort.examples} training examples, "
            f"the data have {len(arrays.train_inputs)}"
        )
    task = make_task(cohort, device)
    code = code_hash()
    ids = [run.run_id for run in runs]
    # An accelerator's streams are not the host's: half a run of each would be neither.
    kind = torch.device(task.device).type
    fingerprint = _fingerprint(code, arrays.digest, str(cohort.noise_multiplier), kind, *ids)
    rows = ResultRows()
    with quarantine_if_corrupt(folder / "rows.pt"):
        if content := load_checkpoint(folder / "rows.pt", fingerprint):
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
                clock=clock,
            )
            for run, outcome in zip(group, outcomes, strict=True):
                rows.runs.append(make_row(task, cohort, run, outcome, code))
                rows.evaluations += outcome.evaluations
            save_checkpoint(folder / "rows.pt", fingerprint, dict(vars(rows)))
            (folder / "state.pt").unlink(missing_ok=True)
    return rows


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_row(
    task: StudyTask, cohort: PlannedCohort, run: Run, outcome: Outcome, code: str
) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "dataset": cohort.dataset,
        "method": cohort.method,
        "k": cohort.k,
        "epsilon": cohort.epsilon,
        "delta": cohort.delta,
        "search_accounting": cohort.search_accounting,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "threshold": run.threshold,
        "quantile": run.quantile,
        "momentum": cohort.momentum,
        "noise_multiplier": cohort.noise_multiplier if cohort.is_private else None,
        "query_noise_multiplier": cohort.query_noise_multiplier,
        "sampling": PoissonSampling.name,
        "examples": cohort.examples,
        "batch_size": cohort.batch_size,
        "epochs": cohort.epochs,
        "steps": cohort.steps,
        "precision": cohort.precision,
        "settings": cohort.run_options,
        "rng_version": RNG_VERSION,
        "status": outcome.status,
        "diverged_at": outcome.diverged_at,
        "device": device_name(task.device),
        "commit": commit(),
        "torch_version": torch.__version__.partition("+")[0],
        "package_version": oso_dp.__version__,
        "code_hash": code,
        # A step takes longer the larger its batch is: times tell of the data.
        "wall_seconds": outcome.wall_seconds if cohort.is_public else None,
        "ledger": outcome.ledger,
    }
