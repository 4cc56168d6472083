"""Every grid's noise before it runs, by any accountant and way to account for its tuning."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting import COMPOSITION, LINEAR_SCALING, SINGLE
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort
from oso_dp.study.config import StudyConfig, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.identity import DEFAULT_STOPPING_DISTRIBUTION
from oso_dp.study.linear_scaling import make_linear_scaling_search


@dataclass(frozen=True)
class CalibratedGrid:
    """One private cohort, how its search is accounted for, and the noise that follows."""

    cohort: Cohort
    search: Search | LinearScalingSearch  # the whole, also of a cohort that is a part of it
    noise_multiplier: float


def calibrate_grids(
    config: StudyConfig,
    accountant: str = "rdp",
    search_accounting: str | None = None,
    stopping_eta: float | None = None,
    trial_fractions: Sequence[float] | None = None,
) -> list[CalibratedGrid]:
    """All private cohorts, in the study's order; grids that cost the same are computed once.

    By the study's own way, shape and shares, unless others are given. The search of a cohort on
    data that are not public is that of all runs on them. OsoError names a cohort that has no noise
    so, or what the study cannot do in that way.
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
                f"{cohort.name}: {cohort.dataset} is not declared public; allowed is {COMPOSITION}"
            )
        search: Search | LinearScalingSearch
        try:
            if cohort.stage is not None:
                search = make_linear_scaling_search(cohort)
                every = search.noise_multipliers(cohort.epsilon, cohort.delta, accountant)
                nu = every[search.stages.index(cohort.stage)]
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
    """The same study in another way: it has other cohorts then."""
    scaled = search_accounting == LINEAR_SCALING
    other = {
        "search_accounting": search_accounting,
        "stopping_distribution": DEFAULT_STOPPING_DISTRIBUTION,
        "trial_fractions": [*trial_fractions] if scaled and trial_fractions else None,
    }
    return parse_config(config.model_dump() | other, f"search_accounting {search_accounting}")
