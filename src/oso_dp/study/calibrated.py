"""Every grid's noise before it runs, by any accountant and way to account for its tuning."""

from dataclasses import dataclass
from functools import cache

from oso_dp.accounting.search import SHAPES, Search
from oso_dp.accounting.tuning import COMPOSITION
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import Cohort
from oso_dp.study.config import StudyConfig
from oso_dp.study.expand import cohorts


@dataclass(frozen=True)
class CalibratedGrid:
    """One private cohort, how its search is accounted for, and the noise that follows."""

    cohort: Cohort
    search: Search
    noise_multiplier: float


def calibrated_grids(
    config: StudyConfig,
    accountant: str = "rdp",
    tuning_accounting: str | None = None,
    shape: float | None = None,
) -> list[CalibratedGrid]:
    """All private cohorts, in the study's order; grids that cost the same are computed once.

    By the study's own way and shape, unless others are given. The search of a cohort on data that
    are not public is that of all runs on them. OsoError names a cohort that has no noise so.
    """
    if shape is None:
        shape = SHAPES[config.stopping_shape]

    @cache
    def noise_multiplier(search: Search, epsilon: float, delta: float) -> float:
        return search.noise_multiplier(epsilon, delta, accountant)

    grids = []
    for cohort in cohorts(config):
        if cohort.epsilon is None or cohort.delta is None:
            continue
        sampling = PoissonSampling(cohort.sampling_rate)
        way = tuning_accounting or cohort.selection
        if way != COMPOSITION and not cohort.public:
            raise OsoError(
                f"{cohort.name}: {cohort.dataset} is not declared public; allowed is {COMPOSITION}"
            )
        try:
            search = Search(sampling, cohort.steps, cohort.paid_runs, way, shape)
            nu = noise_multiplier(search, cohort.epsilon, cohort.delta)
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        grids.append(CalibratedGrid(cohort, search, nu))
    return grids
