"""Calibration: the noise multiplier of every grid, by accountant and search accounting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting import COMPOSITION, LINEAR_SCALING, SINGLE
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.defaults import STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort
from oso_dp.study.config import StudyConfig, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.linear_scaling import make_linear_scaling_search


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
    is_scaling = search_accounting == LINEAR_SCALING
    other = {
        "search_accounting": search_accounting,
        "stopping_distribution": STOPPING_DISTRIBUTION,
        "trial_fractions": [*trial_fractions] if is_scaling and trial_fractions else None,
    }
    return parse_config(config.model_dump() | other, f"search_accounting {search_accounting}")
