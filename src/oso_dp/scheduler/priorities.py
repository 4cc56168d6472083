"""Which runs are trained first: config/priorities.toml, then the paper's tables, then whole grids.

The file has one table [[first]] for each entry, the most valuable entry first. An entry selects
runs by the keys in `KEYS`, each with one value or a list of values. A key that it does not name
is free. Starting values (learning_rate, threshold, quantile) are compared to three digits.
"""

import math
import tomllib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from oso_dp.errors import OsoError
from oso_dp.files import check_regular, format_os_error
from oso_dp.methods import AXES
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.plan import Plan

KEYS = {
    **dict.fromkeys(("plan", "dataset", "method", "stage"), (str,)),
    **dict.fromkeys(("k", "seed"), (int,)),
    **dict.fromkeys(("epsilon", *AXES), (int, float)),
}
MAX_NUMBER = 10**18
THREE_DIGITS = 5e-3  # relative; neighbouring points of a grid differ by much more


class Job(NamedTuple):
    """A cohort and the name of its plan. A run of two plans is in a job of each."""

    plan: str
    cohort: PlannedCohort


@dataclass(frozen=True)
class Priority:
    """An entry of the file: the allowed values by key."""

    allowed: dict[str, tuple[Any, ...]]

    def matches(self, job: Job, run: Run) -> bool:
        facts = vars(job.cohort) | vars(run) | {"plan": job.plan}
        return all(
            any(_is_equal(key, facts[key], one) for one in values)
            for key, values in self.allowed.items()
        )


def _is_equal(key: str, value: Any, allowed: Any) -> bool:
    if key in AXES and value is not None:
        return math.isclose(allowed, value, rel_tol=THREE_DIGITS)
    return bool(value == allowed)


def list_jobs(plans: Sequence[Plan], patterns: Sequence[str] = ()) -> list[Job]:
    """The plans' cohorts that match a METHOD/DATASET pattern; OsoError for one without a match."""
    jobs = [Job(plan.name, cohort) for plan in plans for cohort in plan.cohorts]
    names = [f"{job.cohort.method}/{job.cohort.dataset}" for job in jobs]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            known = ", ".join(sorted({*names}))
            raise OsoError(f"--filter: {pattern}; matches no cohort; must match one of {known}")
    return [
        job
        for job, name in zip(jobs, names, strict=True)
        if any(fnmatchcase(name, pattern) for pattern in patterns or "*")
    ]


Selection = tuple[Job, tuple[Run, ...]]


def rank_runs(
    jobs: Sequence[Job], priorities: Sequence[Priority] = (), paper_runs: Container[str] = ()
) -> list[list[Selection]]:
    """Levels of runs, the most valuable first; a run may be in several."""
    tests = [priority.matches for priority in priorities]
    tests += [lambda job, run: run.run_id in paper_runs, lambda job, run: True]
    return [
        [(job, tuple(run for run in job.cohort.runs if test(job, run))) for job in jobs]
        for test in tests
    ]


def read_priorities(path: Path, jobs: Sequence[Job]) -> list[Priority]:
    """The file's entries, without those for plans that have no jobs here.

    OsoError names an entry with an unknown key, a wrong value or no matching run.
    """
    check_regular(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OsoError(f"{path}: cannot be read as TOML ({format_os_error(error)})") from None
    entries = content.pop("first", None)
    if content or not isinstance(entries, list) or not entries:
        raise OsoError(f"{path}: must have only tables [[first]]")
    plans, found = {job.plan for job in jobs}, []
    names = ", ".join(sorted(plans))
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: entry {number}"
        priority = Priority(_read_entry(where, entry))
        if plans.isdisjoint(priority.allowed.get("plan", plans)):
            continue
        if not any(priority.matches(job, run) for job in jobs for run in job.cohort.runs):
            text = "; ".join(f"{k} = {', '.join(map(str, v))}" for k, v in priority.allowed.items())
            raise OsoError(f"{where}: {text}; matches no run of {names}")
        found.append(priority)
    if not found:
        raise OsoError(f"{path}: no entry is for the plans {names}")
    return found


def _read_entry(where: str, entry: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(entry, dict) or not entry:
        raise OsoError(f"{where}: must have at least one of the keys {', '.join(KEYS)}")
    allowed = {key: tuple(v) if isinstance(v, list) else (v,) for key, v in entry.items()}
    for key, values in allowed.items():
        if key not in KEYS:
            raise OsoError(f"{where}: {key}: unknown key; must be one of {', '.join(KEYS)}")
        too_large = any(isinstance(one, int) and abs(one) > MAX_NUMBER for one in values)
        if too_large or not values or {type(one) for one in values} - {*KEYS[key]}:
            kind = "text" if KEYS[key] == (str,) else f"a number up to {MAX_NUMBER:.0e}"
            shown = repr(entry[key])[:80]
            raise OsoError(f"{where}: {key}: {shown}; must be {kind}, or a list of such")
    return allowed
