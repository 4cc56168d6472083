"""What to run, the most valuable first."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol

from oso_dp.campaign.speed import Speed
from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.plan import Plan


@dataclass(frozen=True)
class Work:
    """A cohort, and the plan that says how to train it.

    `holders`: the names of all plans that hold a run, by its run_id.
    """

    plan: Plan
    cohort: PlannedCohort
    holders: Mapping[str, set[str]]


@dataclass(frozen=True)
class Portion:
    """Runs of one cohort that are worth the same."""

    work: Work
    runs: tuple[Run, ...]


class Preference(Protocol):
    """What goes first, see oso_dp.campaign.priorities."""

    def takes(self, work: Work, run: Run) -> bool:
        """Whether this run of the work does."""


def all_work(plans: Sequence[Plan], patterns: Sequence[str] = ()) -> list[Work]:
    """What the plans hold, each run once, in so far as a METHOD/DATASET pattern names it.

    Without patterns, everything. OsoError for a pattern that names nothing.
    """
    works: list[Work] = []
    holders: dict[str, set[str]] = {}
    for plan in plans:
        for cohort in plan.cohorts:
            runs = tuple(run for run in cohort.runs if run.run_id not in holders)
            works.append(Work(plan, replace(cohort, runs=runs), holders))
            for run in cohort.runs:
                holders.setdefault(run.run_id, set()).add(plan.name)
    names = [f"{work.cohort.method}/{work.cohort.dataset}" for work in works]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(sorted(set(names)))
            raise OsoError(f"--only {pattern}: names nothing in the plan, which has {known}")
    return [
        work
        for work, name in zip(works, names, strict=True)
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def portions(
    everything: Sequence[Work],
    best: Container[str],
    done: Container[str],
    speed: Speed,
    priorities: Sequence[Preference] = (),
    later: Container[str] = (),
) -> list[Portion]:
    """All that is left to do, in order.

    First what each of the `priorities` takes, then the runs that a table of the paper asks for
    (`best`, by run_id), then whole grids; among equals what costs the least comes first. Whatever
    is in a precision of `later` comes after all else.
    """

    def cost(portion: Portion) -> float:
        return len(portion.runs) * speed.run_seconds(portion.work.cohort)

    grids = [
        Portion(work, tuple(run for run in work.cohort.runs if run.run_id not in done))
        for work in everything
    ]
    tables = [
        Portion(grid.work, tuple(run for run in grid.runs if run.run_id in best)) for grid in grids
    ]
    chosen = [
        [
            Portion(grid.work, tuple(run for run in grid.runs if level.takes(grid.work, run)))
            for grid in grids
        ]
        for level in priorities
    ]
    ordered = [
        portion
        for level in (*chosen, tables, grids)
        for portion in sorted(level, key=cost)
        if portion.runs
    ]
    return sorted(ordered, key=lambda portion: portion.work.cohort.precision in later)


def sizes(most: int) -> Iterator[int]:
    """Sizes of a group to try, each about half of the one before."""
    while most:
        yield most
        most //= 2
