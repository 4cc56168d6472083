"""Epsilon by advanced composition: how steps were added up before the moments accountant.

Each step's guarantee is taken by itself, made smaller by the sampling, and the steps are then
composed without a look at what they are (Dwork, Rothblum and Vadhan 2010; Dwork and Roth 2014,
Theorem 3.20). It is here to be compared with; no noise of a study comes from it.
"""

import math

import numpy as np
from scipy.special import log_ndtr

from oso_dp.accounting.accountants import check_delta
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling

# What part of delta the steps' own deltas take up; the rest is the composition's.
_SLACK_FRACTIONS = np.concatenate(
    [np.geomspace(1e-6, 0.5, 60), 1 - np.geomspace(0.5, 1e-6, 60)[1:]]
)


def compute_advanced_epsilon(
    sampling: PoissonSampling, noise_multiplier: float, steps: int, delta: float
) -> float:
    """Epsilon at delta of `steps` Gaussian sums with nu over Poisson batches.

    The least of what plain and advanced composition give, over the ways to split delta. OsoError
    for a delta, a noise multiplier or a number of steps out of range.
    """
    check_delta(delta)
    if not 0 < noise_multiplier < math.inf:
        raise OsoError(f"noise multiplier {noise_multiplier:g}: must be above 0")
    if steps < 1:
        raise OsoError(f"steps {steps}: must be at least 1")
    per_step = np.append(_SLACK_FRACTIONS, 1.0) * delta / (steps * sampling.rate)
    epsilons = amplify_by_sampling(
        compute_gaussian_epsilon(noise_multiplier, per_step), sampling.rate
    )
    plain = steps * epsilons[-1]  # spends the whole delta on the steps
    slack = delta * (1 - _SLACK_FRACTIONS)
    return float(min(plain, np.min(compose_advanced(epsilons[:-1], steps, slack))))


def compute_gaussian_epsilon(noise_multiplier: float, delta: np.ndarray) -> np.ndarray:
    """The least epsilon of one Gaussian sum with nu at each delta > 0 (Balle and Wang 2018).

    delta(epsilon) = Phi(1 / 2nu - epsilon nu) - e^epsilon Phi(-1 / 2nu - epsilon nu), inverted by
    bisection; it is 0 where delta(0) is no more than delta.
    """
    nu = noise_multiplier
    low = np.zeros_like(delta)
    # Here Chernoff's bound on the normal tail is delta already.
    high = 1 / (2 * nu**2) + np.sqrt(2 * np.log(1 / np.minimum(delta, 1))) / nu
    high = np.where(_gaussian_delta(nu, low) <= delta, 0.0, high)
    for _ in range(60):
        middle = (low + high) / 2
        exceeds = _gaussian_delta(nu, middle) > delta
        low, high = np.where(exceeds, middle, low), np.where(exceeds, high, middle)
    return high


def _gaussian_delta(nu: float, epsilon: np.ndarray) -> np.ndarray:
    at = 1 / (2 * nu)
    exact = np.exp(log_ndtr(at - epsilon * nu)) - np.exp(epsilon + log_ndtr(-at - epsilon * nu))
    return np.asarray(exact)


def amplify_by_sampling(epsilon: np.ndarray, rate: float) -> np.ndarray:
    """Epsilon of a step whose examples take part with probability q; its delta becomes q delta.

    log(1 + q (e^epsilon - 1)), exact for Poisson sampling (Balle, Barthe and Gaboardi 2018).
    """
    # As a sum of logarithms where e^epsilon would overflow; where it is near 1, that would round to
    # less than nothing.
    small = np.minimum(epsilon, 1.0)
    near = np.log1p(rate * np.expm1(small))
    far = np.logaddexp(math.log(rate) + epsilon, np.log1p(-rate) if rate < 1 else -np.inf)
    return np.where(epsilon > small, far, near)


def compose_advanced(epsilon: np.ndarray, steps: int, slack: np.ndarray) -> np.ndarray:
    """Epsilon of `steps` steps with epsilon each; their deltas add up, and slack comes on top.

    Theorem 3.20: epsilon sqrt(2 k ln(1 / slack)) + k epsilon (e^epsilon - 1).
    """
    with np.errstate(over="ignore"):  # infinite is a true bound
        drift = steps * epsilon * np.expm1(epsilon)
    return np.asarray(epsilon * np.sqrt(2 * steps * np.log(1 / slack)) + drift)
