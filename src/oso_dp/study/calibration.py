"""The noise multiplier of every grid, and the check of a planned one before training.

The digests of a plan show that it was not edited. The check recomputes epsilon from the values that
training uses. It needs dp_accounting, which a campaign's machine may lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import AnySearch, find_search_accounting
from oso_dp.defaults import ROUNDING, STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort, PlannedCohort
from oso_dp.study.expand import make_cohorts

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig


@dataclass(frozen=True)
class CalibratedGrid:
    """A private cohort, the search that it is accounted as, and its noise multiplier."""

    cohort: Cohort
    search: AnySearch  # all stages, also for a cohort that is one of them
    noise_multiplier: float


def calibrate_grids(
    config: StudyConfig,
    accountant: str = "rdp",
    search_accounting: str | None = None,
    stopping_distribution: str | float | None = None,
    trial_fractions: Sequence[float] | None = None,
) -> list[CalibratedGrid]:
    """Calibrate all private cohorts, in the study's order; equal searches are computed once.

    Arguments that are None are taken from the study; stopping_distribution: a name, or eta. On data
    that are not public, the search is that of all runs on them. OsoError names a cohort for which
    no noise multiplier suffices, or what the study cannot combine with this search accounting.
    """
    if search_accounting not in (None, config.search_accounting) or trial_fractions is not None:
        config = _with_accounting(
            config, search_accounting or config.search_accounting, trial_fractions
        )
    return calibrate(make_cohorts(config), accountant, stopping_distribution)


def calibrate(
    cohorts: Iterable[Cohort],
    accountant: str = "rdp",
    stopping_distribution: str | float | None = None,
) -> list[CalibratedGrid]:
    """As `calibrate_grids`, for these cohorts."""
    stage_noise = cache(_stage_noise)  # equal searches need the same
    grids = []
    for cohort in cohorts:
        if cohort.epsilon is None or cohort.delta is None:
            continue
        accounting = find_search_accounting(cohort.search_accounting)
        options = cohort.search_options
        if stopping_distribution is not None and "stopping_distribution" in accounting.options:
            options |= {"stopping_distribution": stopping_distribution}
        try:
            search = accounting.search(cohort.sampling, cohort.steps, cohort.budgeted_runs, options)
            nu = stage_noise(
                search, accounting.name, cohort.stage, cohort.epsilon, cohort.delta, accountant
            )
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        grids.append(CalibratedGrid(cohort, search, nu))
    return grids


def _stage_noise(
    search: AnySearch,
    search_accounting: str,
    stage: str | None,
    epsilon: float,
    delta: float,
    accountant: str,
) -> float:
    accounting = find_search_accounting(search_accounting)
    return accounting.stage_noise(search, stage, epsilon, delta, accountant)


def _with_accounting(
    config: StudyConfig, search_accounting: str, trial_fractions: Sequence[float] | None
) -> StudyConfig:
    """The study with another search accounting, and so with other cohorts."""
    from oso_dp.study.config import parse_config  # it needs pydantic

    other = {
        "search_accounting": search_accounting,
        "stopping_distribution": STOPPING_DISTRIBUTION,
        "trial_fractions": trial_fractions and [*trial_fractions],
    }
    return parse_config(config.model_dump() | other, f"search_accounting {search_accounting}")


def check_budget(cohorts: Iterable[PlannedCohort]) -> None:
    """OsoError names the first cohort whose search costs more than its epsilon.

    Without dp_accounting nothing is checked.
    """
    try:
        if find_spec("dp_accounting") is None:  # importing all of it would take a second
            return
    except ImportError:
        return
    for cohort in cohorts:
        if cohort.epsilon is None or cohort.delta is None:
            continue
        accounting = find_search_accounting(cohort.search_accounting)
        search, budget = accounting.stage_search(
            cohort.search, cohort.stage, cohort.epsilon, cohort.delta
        )
        spent = _epsilon(search, cohort.noise_multiplier, cohort.delta)
        if spent > budget * (1 + ROUNDING):
            raise OsoError(
                f"{cohort.name}: noise_multiplier: {cohort.noise_multiplier:g}; would cost epsilon "
                f"{format_spent_epsilon(spent)} (delta {cohort.delta!r}, {cohort.budgeted_runs} "
                f"runs), above the budget of {budget:g}; write the plan again with `oso plan`"
            )


@cache  # equal searches cost the same
def _epsilon(search: Search, noise_multiplier: float, delta: float) -> float:
    return search.epsilon(noise_multiplier, delta)
