"""Epsilon by advanced composition, the baseline before the moments accountant.

Each step's (epsilon, delta) is amplified by sampling, and the steps are composed as black boxes
(Dwork, Rothblum and Vadhan 2010; Dwork and Roth 2014, Theorem 3.20). For comparison only: no noise
multiplier of a study is calibrated with it.
"""

import math

import numpy as np
from scipy.special import log_ndtr

from oso_dp.accounting.accountants import check_delta
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling

# The fractions of delta for the steps' deltas; the rest is the slack of the composition.
_SLACK_FRACTIONS = np.concatenate(
    [np.geomspace(1e-6, 0.5, 60), 1 - np.geomspace(0.5, 1e-6, 60)[1:]]
)


def compute_advanced_epsilon(
    sampling: PoissonSampling, noise_multiplier: float, steps: int, delta: float
) -> float:
    """Epsilon at delta of `steps` Gaussian sums with nu over Poisson batches.

    The minimum over basic and advanced composition and over the split of delta between them.

    Raises:
        OsoError: for a delta, a noise multiplier or a number of steps out of range.
    """
    check_delta(delta)
    if not 0 < noise_multiplier < math.inf:
        raise OsoError(f"noise_multiplier: {noise_multiplier:g}; must be > 0 and finite")
    if steps < 1:
        raise OsoError(f"steps: {steps}; must be >= 1")
    per_step = np.append(_SLACK_FRACTIONS, 1.0) * delta / (steps * sampling.rate)
    epsilons = amplify_by_sampling(
        compute_gaussian_epsilon(noise_multiplier, per_step), sampling.rate
    )
    basic = steps * epsilons[-1]  # needs no slack
    slack = delta * (1 - _SLACK_FRACTIONS)
    return float(min(basic, np.min(compose_advanced(epsilons[:-1], steps, slack))))


def compute_gaussian_epsilon(noise_multiplier: float, delta: np.ndarray) -> np.ndarray:
    """The smallest epsilon of one Gaussian sum with nu at each delta > 0 (Balle and Wang 2018).

    delta(epsilon) = Phi(1 / 2nu - epsilon nu) - e^epsilon Phi(-1 / 2nu - epsilon nu), inverted by
    bisection; it is 0 where delta(0) <= delta.
    """
    nu = noise_multiplier
    low = np.zeros_like(delta)
    # Here Chernoff's bound on the normal tail equals delta.
    high = 1 / (2 * nu**2) + np.sqrt(2 * np.log(1 / np.minimum(delta, 1))) / nu
    high = np.where(_gaussian_delta(nu, low) <= delta, 0.0, high)
    for _ in range(60):
        middle = (low + high) / 2
        exceeds = _gaussian_delta(nu, middle) > delta
        low, high = np.where(exceeds, middle, low), np.where(exceeds, high, middle)
    return high


def _gaussian_delta(nu: float, epsilon: np.ndarray) -> np.ndarray:
    half = 1 / (2 * nu)
    delta = np.exp(log_ndtr(half - epsilon * nu)) - np.exp(epsilon + log_ndtr(-half - epsilon * nu))
    return np.asarray(delta)


def amplify_by_sampling(epsilon: np.ndarray, rate: float) -> np.ndarray:
    """Epsilon of a step on a Poisson batch at rate q; its delta becomes q delta.

    log(1 + q (e^epsilon - 1)), exact for Poisson sampling (Balle, Barthe and Gaboardi 2018).
    """
    # A sum of logarithms for large epsilon, where e^epsilon would overflow; for small epsilon that
    # would round to below 0.
    clipped = np.minimum(epsilon, 1.0)
    small = np.log1p(rate * np.expm1(clipped))
    large = np.logaddexp(math.log(rate) + epsilon, np.log1p(-rate) if rate < 1 else -np.inf)
    return np.where(epsilon > clipped, large, small)


def compose_advanced(epsilon: np.ndarray, steps: int, slack: np.ndarray) -> np.ndarray:
    """Epsilon of `steps` steps with epsilon each; its delta is the sum of theirs plus slack.

    Theorem 3.20: epsilon sqrt(2 k ln(1 / slack)) + k epsilon (e^epsilon - 1).
    """
    with np.errstate(over="ignore"):  # inf is a valid bound
        drift = steps * epsilon * np.expm1(epsilon)
    return np.asarray(epsilon * np.sqrt(2 * steps * np.log(1 / slack)) + drift)
