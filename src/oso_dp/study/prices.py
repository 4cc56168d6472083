"""The price of every grid of a study under any accountant and selection rule, before it runs."""

from dataclasses import dataclass
from functools import cache

from oso_dp.accounting.search import SHAPES, Search
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import Cohort, cohorts
from oso_dp.study.config import StudyConfig


@dataclass(frozen=True)
class GridPrice:
    """One private cohort, how its search is priced, and the noise multiplier that follows."""

    cohort: Cohort
    search: Search
    noise_multiplier: float


def grid_prices(
    config: StudyConfig,
    accountant: str = "rdp",
    selection: str | None = None,
    shape: float | None = None,
) -> list[GridPrice]:
    """All private cohorts, in the study's order; grids that cost the same are priced once.

    By the study's own selection and shape, unless others are given. OsoError names a cohort that
    cannot be priced so.
    """
    if shape is None:
        shape = SHAPES[config.stopping_shape]

    @cache
    def price(search: Search, epsilon: float, delta: float) -> float:
        return search.noise_multiplier(epsilon, delta, accountant)

    prices = []
    for cohort in cohorts(config):
        if cohort.epsilon is None or cohort.delta is None:
            continue
        sampling = PoissonSampling(cohort.batch_size / cohort.examples)
        rule = selection or cohort.selection
        try:
            search = Search(sampling, cohort.steps, cohort.grid_runs, rule, shape)
        except OsoError as error:
            raise OsoError(f"{cohort.name}: {error}") from None
        prices.append(GridPrice(cohort, search, price(search, cohort.epsilon, cohort.delta)))
    return prices
