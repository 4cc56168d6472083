"""Calibration: the smallest noise multiplier that meets a budget, by a bracket and Brent's method.

Each evaluation of an accountant is slow, and PLD takes minutes at very small noise. So no noise
multiplier is evaluated twice, and a faster accountant's result is the starting point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e4  # the range of noise multipliers
_MIN_LOG, _MAX_LOG = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
_FIRST_STEP, _STEP_FACTOR = 0.002, 3.0  # of the bracket, in logarithms


def calibrate_noise_multiplier(
    cost: Callable[[float], float], epsilon: float, tolerance: float, near: float | None = None
) -> float | None:
    """The smallest nu with cost(nu) <= epsilon, never below the exact value.

    Args:
        cost: epsilon of a noise multiplier, decreasing; may be inf.
        epsilon: the budget.
        tolerance: relative, of nu.
        near: a starting point; None to start from the ends of the range.

    Returns:
        The noise multiplier, or None if the range [SMALLEST_NOISE, LARGEST_NOISE] does not
        contain the exact value.
    """
    from scipy.optimize import brentq

    @cache
    def excess(log_nu: float) -> float:
        return cost(math.exp(log_nu)) - epsilon

    low, high = (_MIN_LOG, _MAX_LOG) if near is None else _bracket(excess, math.log(near))
    if not excess(high) <= 0 < excess(low):
        return None
    root = brentq(excess, low, high, xtol=tolerance)  # in logarithms, so that it is relative
    while excess(root) > 0:  # Brent's root may lie on either side
        root = min(root + tolerance, high)
    return math.exp(root)


def _bracket(excess: Callable[[float], float], near: float) -> tuple[float, float]:
    """Logarithms of two noise multipliers, too small and large enough, if they are in the range."""
    low = high = min(max(near, _MIN_LOG), _MAX_LOG)
    step = _FIRST_STEP
    while excess(high) > 0 and high < _MAX_LOG:
        low, high, step = high, min(high + step, _MAX_LOG), _STEP_FACTOR * step
    while excess(low) <= 0 and low > _MIN_LOG:
        low, high, step = max(low - step, _MIN_LOG), low, _STEP_FACTOR * step
    return low, high
