"""Random stopping: a random number K of random grid points is trained, only the best is released.

Papernot and Steinke 2022. The cost grows far more slowly with the mean number of runs than a
composition does, but their number is not known in advance. K has a truncated negative binomial or
a Poisson distribution: `eta` is the parameter of the former (Definition 1; 0: logarithmic, 1:
geometric; K >= 1), or inf for Poisson, where K may be 0. `mean` is E[K] > 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.accounting.search_accounting.base import SearchAccounting
from oso_dp.defaults import STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, composed_event
from oso_dp.privacy.sampling import PoissonSampling, Words

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# eta of the truncated negative binomial distribution of the number of runs; inf for Poisson.
STOPPING_ETA = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
_MAX_POISSON_RUNS = 700  # exp(-746) is 0 in float64, which would make all probabilities 0
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RandomStoppingSearch(Search):
    """A random number of trainings of `steps` steps each, of which the best is released.

    Attributes:
        runs: the mean number of trainings; > 1.
        stopping_eta: eta >= 0 of its distribution, see `STOPPING_ETA`.
        prior_releases: must be empty.

    Raises:
        OsoError: for a value out of range.
    """

    stopping_eta: float = STOPPING_ETA[STOPPING_DISTRIBUTION]

    _has_best_order: ClassVar[bool] = False  # its cost combines all orders

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_releases:
            raise OsoError("prior_releases: not supported by search_accounting random_stopping")
        if not self.stopping_eta >= 0:
            raise OsoError(f"stopping_eta: {self.stopping_eta:g}; must be >= 0")
        if self.runs == 1:
            raise OsoError("runs: 1; must be > 1 (the mean) for search_accounting random_stopping")

    def _event(self, noise_multiplier: float) -> DpEvent:
        one = composed_event({(self.sampling, noise_multiplier): self.steps})
        return _random_stopping_event(one, self.runs, self.stopping_eta)

    def _check_pld(self, epsilon: float) -> None:
        raise OsoError("accountant: 'pld'; must be 'rdp' for random stopping")


class RandomStopping(SearchAccounting):
    """The rows of a study serve to compute the search's expected outcome, and are not charged."""

    name = RANDOM_STOPPING
    label = "random stopping"
    summary = (
        "a random number of runs, of which only the best is released (Papernot and Steinke 2022)"
    )
    options: ClassVar = {"stopping_distribution": STOPPING_DISTRIBUTION}
    supports_pld = False

    def search(
        self, sampling: PoissonSampling, steps: int, runs: int, options: Mapping[str, Any]
    ) -> RandomStoppingSearch:
        """stopping_distribution: a name in `STOPPING_ETA`, or eta itself."""
        shape = self.complete_options(options)["stopping_distribution"]
        eta = STOPPING_ETA.get(shape, shape)
        return RandomStoppingSearch(sampling, steps, runs, stopping_eta=eta)

    def spent_by(
        self,
        search: RandomStoppingSearch,
        ledgers: Sequence[Ledger],
        full_run: Ledger,
        delta: float,
    ) -> float:
        """As if every run were a full one, with the smallest noise."""
        eta = search.stopping_eta
        return compute_random_stopping_epsilon(full_run, len(ledgers), eta, delta)


def compute_random_stopping_epsilon(
    candidate: Ledger, mean_runs: int, eta: float, delta: float
) -> float:
    """Epsilon at delta, by RDP, of a search by random stopping (Papernot and Steinke 2022).

    Args:
        candidate: the most that any candidate releases. Which candidate is drawn does not depend on
            the data, so a draw costs at most what the most expensive candidate does.
        mean_runs: the mean number of runs, > 1.
        eta: of the distribution of their number, see `STOPPING_ETA`.
        delta: in (0, 1).

    Raises:
        OsoError: for a value out of range.
    """
    RandomStoppingSearch(candidate.sampling, 1, mean_runs, stopping_eta=eta)
    event = _random_stopping_event(candidate.event(), mean_runs, eta)
    return compute_epsilon_of_event(candidate.sampling, event, delta, "rdp")


def _random_stopping_event(run: DpEvent, mean_runs: int, eta: float) -> DpEvent:
    """A random number of runs, each of which costs `run`; only the best is released."""
    from oso_dp.privacy.dp_events import dp_event

    return dp_event.RepeatAndSelectDpEvent(run, mean_runs, eta)


def generating_function(mean: float, eta: float) -> Callable[[Values], Values]:
    """x -> E[x^K] on [0, 1]."""
    if math.isinf(eta):
        return lambda x: np.exp(mean * (x - 1))
    gamma = _stopping_probability(mean, eta)
    if eta == 0:
        return lambda x: np.log1p((gamma - 1) * x) / math.log(gamma)
    return lambda x: np.expm1(-eta * np.log1p((gamma - 1) * x)) / (gamma**-eta - 1)


def draw_number_of_runs(mean: float, eta: float, words: Words) -> int:
    """Draw K by inversion of the distribution function at a uniform number of 53 bits.

    Raises:
        OsoError: for Poisson with a mean above 700, where P[K = 0] underflows.
    """
    if math.isinf(eta) and mean > _MAX_POISSON_RUNS:
        raise OsoError(f"mean: {mean:g}; must be <= {_MAX_POISSON_RUNS} for Poisson")
    uniform = (int(words(1)[0] >> np.uint64(11)) + 0.5) * 2.0**-53
    if math.isinf(eta):
        runs, probability, ratio = 0, math.exp(-mean), _poisson_ratio(mean)
    else:
        gamma = _stopping_probability(mean, eta)
        runs, ratio = 1, _binomial_ratio(gamma, eta)
        probability = (1 - gamma) / (
            -math.log(gamma) if eta == 0 else math.expm1(-eta * math.log(gamma)) / eta
        )
    cumulative = probability
    while uniform > cumulative:
        probability *= ratio(runs)
        runs += 1
        if cumulative + probability == cumulative and runs > mean:  # float64's last digit
            break
        cumulative += probability
    return runs


def _binomial_ratio(gamma: float, eta: float) -> Callable[[int], float]:
    """P[K = k + 1] / P[K = k]"""
    return lambda k: (1 - gamma) * (k + eta) / (k + 1)


def _poisson_ratio(mean: float) -> Callable[[int], float]:
    return lambda k: mean / (k + 1)


@cache
def _stopping_probability(mean: float, eta: float) -> float:
    """gamma of the truncated negative binomial with this mean > 1."""
    from scipy.optimize import brentq  # importing it takes a third of a second

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if eta == 0:
            return (1 - 1 / gamma) / log_gamma - mean
        return eta * (1 / gamma - 1) / -math.expm1(eta * log_gamma) - mean

    return math.exp(brentq(excess, math.log(1e-9 / mean), -1e-9, xtol=1e-14))
