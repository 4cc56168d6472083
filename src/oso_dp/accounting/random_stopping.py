"""Random stopping: the distribution of K, the number of runs of a search (truncated negative
binomial or Poisson).

`eta` is the parameter of the truncated negative binomial (Papernot and Steinke 2022, Definition 1;
0: logarithmic, 1: geometric; K >= 1), or inf for Poisson, where K may be 0
(`oso_dp.accounting.tuning_cost.STOPPING_ETA`). `mean` is E[K] > 1.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import Words

_MAX_POISSON_RUNS = 700  # exp(-746) is 0 in float64, which would make all probabilities 0
Values = npt.NDArray[np.float64]


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

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if eta == 0:
            return (1 - 1 / gamma) / log_gamma - mean
        return eta * (1 / gamma - 1) / -math.expm1(eta * log_gamma) - mean

    return math.exp(brentq(excess, math.log(1e-9 / mean), -1e-9, xtol=1e-14))
