"""The work left in a study, by data set and method: runs, jobs, hours."""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass

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


def estimate_seconds(config: StudyConfig, cohort: Cohort, runs: Iterable[Run]) -> float:
    """Seconds that runs of a cohort take on 2 CPU cores, as configured."""
    run_seconds = cohort.steps * config.datasets[cohort.dataset].seconds_per_step
    return sum(run_seconds for _ in runs)
