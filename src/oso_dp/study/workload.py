"""What lies ahead of a study: how many runs, cohorts, hours."""

from collections.abc import Container
from dataclasses import dataclass

from oso_dp.study.cohort import Cohort
from oso_dp.study.config import StudyConfig


@dataclass(frozen=True)
class Workload:
    """Counts of a study's runs; hours are on 2 CPU cores, of what is not stored yet."""

    name: str
    private_runs: int
    private_cohorts: int
    plain_runs: int
    plain_cohorts: int
    stored_runs: int
    hours: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.private_runs:,} private runs in {self.private_cohorts} cohorts "
            f"and {self.plain_runs:,} NoDP runs in {self.plain_cohorts}; {self.stored_runs:,} of "
            f"them stored already; about {self.hours:,.1f} hours ahead on 2 CPU cores"
        )


def workload(config: StudyConfig, every: list[Cohort], stored: Container[str]) -> Workload:
    """Count; `stored` holds the run_ids in the results store."""
    private = [cohort for cohort in every if cohort.private]
    plain = [cohort for cohort in every if not cohort.private]
    ahead = [
        (cohort.steps * config.datasets[cohort.dataset].seconds_per_step)
        for cohort in every
        for run in cohort.runs
        if run.run_id not in stored
    ]
    total = sum(len(cohort.runs) for cohort in every)
    return Workload(
        config.name,
        sum(len(cohort.runs) for cohort in private),
        len(private),
        sum(len(cohort.runs) for cohort in plain),
        len(plain),
        total - len(ahead),
        sum(ahead) / 3600,
    )
