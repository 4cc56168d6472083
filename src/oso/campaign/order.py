"""What to run, the most valuable first."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from oso.campaign.speed import Speed
from oso.errors import OsoError
from oso.study.cohort import Cohort, Run


@dataclass(frozen=True)
class Portion:
    """Runs of one cohort that are worth the same."""

    cohort: Cohort
    runs: tuple[Run, ...]


def portions(
    cohorts: Sequence[Cohort], best: Container[str], done: Container[str], speed: Speed
) -> list[Portion]:
    """All that is left to do, in order.

    First the runs that a table of the paper asks for (`best`, by run_id), then whole grids; among
    equals what costs the least comes first.
    """

    def cost(portion: Portion) -> float:
        return len(portion.runs) * speed.run_seconds(portion.cohort)

    grids = [
        Portion(cohort, tuple(run for run in cohort.runs if run.run_id not in done))
        for cohort in cohorts
    ]
    tables = [
        Portion(grid.cohort, tuple(run for run in grid.runs if run.run_id in best))
        for grid in grids
    ]
    return [
        portion for each in (tables, grids) for portion in sorted(each, key=cost) if portion.runs
    ]


def select(cohorts: Sequence[Cohort], patterns: Sequence[str]) -> list[Cohort]:
    """The cohorts that one of the METHOD/DATASET patterns names; OsoError if one names none."""
    names = {cohort.name: f"{cohort.method}/{cohort.dataset}" for cohort in cohorts}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names.values()):
            known = ", ".join(sorted(set(names.values())))
            raise OsoError(f"--only {pattern}: names nothing in the plan, which has {known}")
    return [
        cohort
        for cohort in cohorts
        if not patterns or any(fnmatchcase(names[cohort.name], each) for each in patterns)
    ]


def sizes(most: int) -> Iterator[int]:
    """Sizes of a group to try, each about half of the one before."""
    while most:
        yield most
        most //= 2
