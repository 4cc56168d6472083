"""How often random stopping draws a candidate: the distribution of K.

`shape` is eta of the truncated negative binomial (Papernot and Steinke 2022, Definition 1; 0:
logarithmic, 1: geometric; K >= 1), or infinity for Poisson, where K = 0 is possible
(`oso_dp.accounting.tuning_cost.STOPPING_ETA`). `mean`: of K, above 1.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from oso_dp.errors import OsoError
from oso_dp.privacy.poisson_subset import Words

_MAX_POISSON_RUNS = 700  # exp(-746) is 0 in float64, and so would be every chance after it
Values = npt.NDArray[np.float64]


def generating_function(mean: float, shape: float) -> Callable[[Values], Values]:
    """x -> E[x^K] on [0, 1]."""
    if math.isinf(shape):
        return lambda x: np.exp(mean * (x - 1))
    gamma = _stopping_probability(mean, shape)
    if shape == 0:
        return lambda x: np.log1p((gamma - 1) * x) / math.log(gamma)
    return lambda x: np.expm1(-shape * np.log1p((gamma - 1) * x)) / (gamma**-shape - 1)


def draw_number_of_runs(mean: float, shape: float, words: Words) -> int:
    """One K, drawn by a uniform number of 53 bits through the distribution function.

    OsoError for a mean of Poisson's above 700, where the chance of K = 0 is no number any more.
    """
    if math.isinf(shape) and mean > _MAX_POISSON_RUNS:
        raise OsoError(f"mean {mean:g}: must be at most {_MAX_POISSON_RUNS} for Poisson")
    uniform = (int(words(1)[0] >> np.uint64(11)) + 0.5) * 2.0**-53
    if math.isinf(shape):
        runs, chance, ratio = 0, math.exp(-mean), _poisson_ratio(mean)
    else:
        gamma = _stopping_probability(mean, shape)
        runs, ratio = 1, _binomial_ratio(gamma, shape)
        chance = (1 - gamma) / (
            -math.log(gamma) if shape == 0 else math.expm1(-shape * math.log(gamma)) / shape
        )
    below = chance
    while uniform > below:
        chance *= ratio(runs)
        runs += 1
        if below + chance == below and runs > mean:  # the sum's last digit: nothing can be added
            break
        below += chance
    return runs


def _binomial_ratio(gamma: float, shape: float) -> Callable[[int], float]:
    """P[K = k + 1] / P[K = k]"""
    return lambda k: (1 - gamma) * (k + shape) / (k + 1)


def _poisson_ratio(mean: float) -> Callable[[int], float]:
    return lambda k: mean / (k + 1)


@cache
def _stopping_probability(mean: float, shape: float) -> float:
    """gamma of the distribution with this mean, above 1."""

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if shape == 0:
            return (1 - 1 / gamma) / log_gamma - mean
        return shape * (1 / gamma - 1) / -math.expm1(shape * log_gamma) - mean

    return math.exp(brentq(excess, math.log(1e-9 / mean), -1e-9, xtol=1e-14))
