"""Searches for tests."""

from oso_dp.accounting.search_accounting import AnySearch, find_search_accounting
from oso_dp.privacy.sampling import PoissonSampling


def make_search(
    sampling: PoissonSampling,
    steps: int,
    runs: int,
    search_accounting: str,
    stopping_eta: float | None = None,
) -> AnySearch:
    """The search by the accounting of this name; stopping_eta: for random stopping."""
    options = {"stopping_distribution": stopping_eta, "trial_fractions": None}
    return find_search_accounting(search_accounting).search(sampling, steps, runs, options)
