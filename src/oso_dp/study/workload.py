"""The work left in a study (runs, jobs, hours), and what a training job requests.

A job that is restarted after running out of memory requests more. After running out of time it
needs no more: it resumes from its checkpoint.
"""

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from oso_dp.data.plugins import USER_MODEL
from oso_dp.models import MODELS
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.config import StudyConfig


@dataclass
class RunTotals:
    """Totals over cohorts. Hours are on 2 CPU cores, of the runs that are not stored."""

    cohorts: int = 0
    runs: int = 0
    stored: int = 0
    jobs: int = 0  # with at least one run left to train
    hours: float = 0.0

    def add(self, other: "RunTotals") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Workload:
    """Totals of a study: private cohorts, non-private ones, and each data set and method."""

    name: str
    private: RunTotals
    plain: RunTotals
    parts: dict[tuple[str, str], RunTotals]

    @property
    def stored(self) -> int:
        """Number of stored runs."""
        return self.private.stored + self.plain.stored

    @property
    def hours(self) -> float:
        """Hours left on 2 CPU cores."""
        return self.private.hours + self.plain.hours

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.private.runs:,} private runs in {self.private.cohorts} cohort"
            f"{'s' * (self.private.cohorts != 1)} "
            f"and {self.plain.runs:,} NoDP runs in {self.plain.cohorts}; {self.stored:,} of "
            f"them stored; about {self.hours:,.1f} hours left on 2 CPU cores"
        )

    def table(self) -> str:
        """A line for each data set and method that has a run left to train."""
        form = "{:16} {:24} {:>8} {:>8} {:>6} {:>9}"
        lines = [form.format("data set", "method", "runs", "stored", "jobs", "hours")]
        for (dataset, method), count in self.parts.items():
            if count.jobs:
                cells = (f"{count.runs:,}", f"{count.stored:,}", f"{count.jobs:,}")
                lines.append(form.format(dataset, method, *cells, f"{count.hours:,.1f}"))
        return "\n".join(lines) if len(lines) > 1 else "all runs are stored"


def estimate_workload(
    config: StudyConfig, cohorts: Iterable[Cohort], stored: Container[str]
) -> Workload:
    """Count runs, jobs and hours; stored: run_ids in the results store."""
    private, plain = RunTotals(), RunTotals()
    parts: dict[tuple[str, str], RunTotals] = defaultdict(RunTotals)
    for cohort in cohorts:
        shards = cohort.shards(config.runs_per_job)
        left = [[run for run in shard if run.run_id not in stored] for shard in shards]
        count = RunTotals(
            cohorts=1,
            runs=len(cohort.runs),
            stored=len(cohort.runs) - sum(map(len, left)),
            jobs=sum(bool(runs) for runs in left),
            hours=sum(estimate_seconds(config, cohort, runs) for runs in left) / 3600,
        )
        (private if cohort.is_private else plain).add(count)
        parts[cohort.dataset, cohort.method].add(count)
    return Workload(config.name, private, plain, dict(parts))


def estimate_seconds(config: StudyConfig, cohort: Cohort, runs: Sequence[Run]) -> float:
    """Seconds that runs of a cohort take on 2 CPU cores, as configured."""
    return len(runs) * cohort.steps * config.datasets[cohort.dataset].seconds_per_step


_PROGRAM = 1_000  # MB: Python with its packages, 400; two processes of Snakemake, 170 each; batches
_OF_ARRAYS = 2  # copies: as read, and as tensors
_ON_A_GPU = 3_000  # MB more of main memory for CUDA
_MARGIN = 2.0  # factor on the configured time, for slower machines
_MEASURED_ON = 2  # cores
_START = 10  # minutes


def estimate_memory_mb(config: StudyConfig, cohort: Cohort, attempt: int = 1) -> int:
    """Main memory in MiB."""
    info = config.info(cohort.dataset)
    shape = info.input_shape if cohort.model == USER_MODEL else MODELS[cohort.model].input_shape
    numbers = math.prod(shape) * (info.examples + info.test_examples)
    arrays = math.ceil(_OF_ARRAYS * 4 * numbers / 2**20)
    return attempt * (_PROGRAM + arrays + _ON_A_GPU * count_gpus(config))


def estimate_minutes(config: StudyConfig, cohort: Cohort, runs: Sequence[Run]) -> int:
    """Wall time of a job that trains these runs, in minutes."""
    slower = _MARGIN * max(1.0, _MEASURED_ON / config.threads_per_job)
    return _START + math.ceil(slower * estimate_seconds(config, cohort, runs) / 60)


def count_gpus(config: StudyConfig) -> int:
    """GPUs per training job; a profile or `--set-resources train:gpu=1` may request one, too."""
    return int(config.device == "cuda")
