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
from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting import COMPOSITION, FINAL_STAGE, LINEAR_SCALING, SINGLE
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.defaults import ROUNDING, STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort, PlannedCohort
from oso_dp.study.expand import make_cohorts
from oso_dp.study.linear_scaling import make_linear_scaling_search

if TYPE_CHECKING:
    from oso_dp.study.config import StudyConfig


@dataclass(frozen=True)
class CalibratedGrid:
    """A private cohort, the search that it is accounted as, and its noise multiplier."""

    cohort: Cohort
    search: Search | LinearScalingSearch  # all stages, also for a cohort that is one of them
    noise_multiplier: float


def calibrate_grids(
    config: StudyConfig,
    accountant: str = "rdp",
    search_accounting: str | None = None,
    stopping_eta: float | None = None,
    trial_fractions: Sequence[float] | None = None,
) -> list[CalibratedGrid]:
    """Calibrate all private cohorts, in the study's order; equal searches are computed once.

    Arguments that are None are taken from the study. On data that are not public, the search is
    that of all runs on them. OsoError names a cohort for which no noise multiplier suffices, or
    what the study cannot combine with this search accounting.
    """
    accounting = search_accounting or config.search_accounting
    if {LINEAR_SCALING, SINGLE} & {accounting, config.search_accounting}:
        config = _with_accounting(config, accounting, trial_fractions or config.trial_fractions)
    if stopping_eta is None:
        stopping_eta = STOPPING_ETA[config.stopping_distribution]

    @cache
    def noise_multiplier(search: Search, epsilon: float, delta: float) -> float:
        return search.noise_multiplier(epsilon, delta, accountant)

    grids = []
    for cohort in make_cohorts(config):
        if cohort.epsilon is None or cohort.delta is None:
            continue
        if accounting != COMPOSITION and not cohort.is_public:
            raise OsoError(
                f"{cohort.name}: search_accounting: {accounting}; must be {COMPOSITION}, since "
                f"{cohort.dataset} is not declared public"
            )
        search: Search | LinearScalingSearch
        try:
            if cohort.stage is not None:
                search = make_linear_scaling_search(cohort)
                by_stage = search.noise_multipliers(cohort.epsilon, cohort.delta, accountant)
                nu = by_stage[search.stages.index(cohort.stage)]
            else:
                search = Search(
                    cohort.sampling, cohort.steps, cohort.budgeted_runs, accounting, stopping_eta
                )
                nu = noise_multiplier(search, cohort.epsilon, cohort.delta)
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        grids.append(CalibratedGrid(cohort, search, nu))
    return grids


def _with_accounting(
    config: StudyConfig, search_accounting: str, trial_fractions: Sequence[float] | None
) -> StudyConfig:
    """The study with another search accounting, and so with other cohorts."""
    from oso_dp.study.config import parse_config  # it needs pydantic

    is_scaling = search_accounting == LINEAR_SCALING
    other = {
        "search_accounting": search_accounting,
        "stopping_distribution": STOPPING_DISTRIBUTION,
        "trial_fractions": [*trial_fractions] if is_scaling and trial_fractions else None,
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
        search, budget = _search(cohort, cohort.epsilon, cohort.delta)
        spent = _epsilon(search, cohort.noise_multiplier, cohort.delta)
        if spent > budget * (1 + ROUNDING):
            raise OsoError(
                f"{cohort.name}: noise_multiplier: {cohort.noise_multiplier:g}; would cost epsilon "
                f"{format_spent_epsilon(spent)} (delta {cohort.delta!r}, {cohort.budgeted_runs} "
                f"runs), above the budget of {budget:g}; write the plan again with `oso plan`"
            )


def _search(cohort: PlannedCohort, epsilon: float, delta: float) -> tuple[Search, float]:
    """The search that the cohort's noise was calibrated for, and its budget."""
    if cohort.stage is not None:
        stages = make_linear_scaling_search(cohort)
        if cohort.stage == FINAL_STAGE:
            return stages.final_stage(stages.noise_multipliers(epsilon, delta)[:-1]), epsilon
        fraction = stages.trial_fractions[stages.stages.index(cohort.stage)]
        return stages.trial_stage, fraction * epsilon
    eta = STOPPING_ETA[cohort.stopping_distribution or STOPPING_DISTRIBUTION]
    search = Search(
        cohort.sampling, cohort.steps, cohort.budgeted_runs, cohort.search_accounting, eta
    )
    return search, epsilon


@cache  # equal searches cost the same
def _epsilon(search: Search, noise_multiplier: float, delta: float) -> float:
    return search.epsilon(noise_multiplier, delta)
