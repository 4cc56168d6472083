"""The price of every grid of a study under any accountant and selection rule, before it runs."""

from dataclasses import dataclass
from functools import cache

from oso.privacy.sampling import PoissonSampling
from oso.privacy.search import SHAPES, Search
from oso.study.cohort import Cohort, cohorts
from oso.study.config import StudyConfig


@dataclass(frozen=True)
class GridPrice:
    """One private cohort, how its search is priced, and the noise multiplier that follows."""

    cohort: Cohort
    search: Search
    noise_multiplier: float


def grid_prices(
    config: StudyConfig,
    accountant: str = "rdp",
    selection: str = "composition",
    shape: float = SHAPES["geometric"],
) -> list[GridPrice]:
    """All private cohorts, in the study's order; grids that cost the same are priced once."""

    @cache
    def price(search: Search, epsilon: float, delta: float) -> float:
        return search.noise_multiplier(epsilon, delta, accountant)

    prices = []
    for cohort in cohorts(config):
        if cohort.epsilon is None or cohort.delta is None:
            continue
        sampling = PoissonSampling(cohort.batch_size / cohort.examples)
        search = Search(sampling, cohort.steps, cohort.grid_runs, selection, shape)
        prices.append(GridPrice(cohort, search, price(search, cohort.epsilon, cohort.delta)))
    return prices
