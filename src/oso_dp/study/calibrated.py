"""Every grid's noise before it runs, by any accountant and way to account for its tuning."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from oso_dp.accounting.scaled_search import ScaledSearch
from oso_dp.accounting.search import SHAPES, Search
from oso_dp.accounting.tuning import COMPOSITION, LINEAR_SCALING, SINGLE
from oso_dp.errors import OsoError
from oso_dp.study.cohort import Cohort
from oso_dp.study.config import StudyConfig, parse_config
from oso_dp.study.expand import cohorts
from oso_dp.study.identity import STOPPING_SHAPE
from oso_dp.study.scaled import scaled_search


@dataclass(frozen=True)
class CalibratedGrid:
    """One private cohort, how its search is accounted for, and the noise that follows."""

    cohort: Cohort
    search: Search | ScaledSearch  # the whole, also of a cohort that is a part of it
    noise_multiplier: float


def calibrated_grids(
    config: StudyConfig,
    accountant: str = "rdp",
    tuning_accounting: str | None = None,
    shape: float | None = None,
    trial_shares: Sequence[float] | None = None,
) -> list[CalibratedGrid]:
    """All private cohorts, in the study's order; grids that cost the same are computed once.

    By the study's own way, shape and shares, unless others are given. The search of a cohort on
    data that are not public is that of all runs on them. OsoError names a cohort that has no noise
    so, or what the study cannot do in that way.
    """
    way = tuning_accounting or config.tuning_accounting
    if {LINEAR_SCALING, SINGLE} & {way, config.tuning_accounting}:
        config = _accounted(config, way, trial_shares or config.trial_shares)
    if shape is None:
        shape = SHAPES[config.stopping_shape]

    @cache
    def noise_multiplier(search: Search, epsilon: float, delta: float) -> float:
        return search.noise_multiplier(epsilon, delta, accountant)

    grids = []
    for cohort in cohorts(config):
        if cohort.epsilon is None or cohort.delta is None:
            continue
        way = tuning_accounting or cohort.selection
        if way != COMPOSITION and not cohort.public:
            raise OsoError(
                f"{cohort.name}: {cohort.dataset} is not declared public; allowed is {COMPOSITION}"
            )
        search: Search | ScaledSearch
        try:
            if cohort.part is not None:
                search = scaled_search(cohort)
                every = search.noise_multipliers(cohort.epsilon, cohort.delta, accountant)
                nu = every[search.parts.index(cohort.part)]
            else:
                search = Search(cohort.sampling, cohort.steps, cohort.paid_runs, way, shape)
                nu = noise_multiplier(search, cohort.epsilon, cohort.delta)
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        grids.append(CalibratedGrid(cohort, search, nu))
    return grids


def _accounted(config: StudyConfig, way: str, shares: Sequence[float] | None) -> StudyConfig:
    """The same study in another way: it has other cohorts then."""
    scaled = way == LINEAR_SCALING
    other = {
        "selection": way,
        "stopping_shape": STOPPING_SHAPE,
        "trial_shares": [*shares] if scaled and shares else None,
    }
    return parse_config(config.model_dump() | other, f"selection {way}")
