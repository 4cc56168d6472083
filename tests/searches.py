"""Searches for tests."""

from collections.abc import Sequence

from oso_dp.accounting.search_accounting import AnySearch, find_search_accounting
from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch
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


def scaled_cost(
    search: LinearScalingSearch, noise: Sequence[float], delta: float, accountant: str = "rdp"
) -> float:
    """Epsilon of all trials and the final run, with these nu of the stages."""
    *trials, final = noise
    return search.final_stage(trials).epsilon(final, delta, accountant)
