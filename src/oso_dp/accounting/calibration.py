"""The least noise multiplier that meets a budget: a bracket around it, then Brent's method.

Each look at an accountant takes its time, and PLD's takes minutes where there is almost no noise.
So no noise is asked about twice, and a quicker accountant's answer says where to begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

SMALLEST_NOISE, LARGEST_NOISE = 0.05, 1e4  # noise multipliers between which it is looked for
_LEAST, _MOST = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
_FIRST_STEP, _GROWS = 0.002, 3.0  # away from where to begin, in logarithms


def calibrate_noise_multiplier(
    cost: Callable[[float], float], epsilon: float, tolerance: float, near: float | None = None
) -> float | None:
    """The least nu with cost(nu) <= epsilon, up to `tolerance` (relative) and never below it.

    cost: epsilon of a noise multiplier, inf allowed; falls as nu grows. near: where to begin,
    None: at the ends of the range. Returns None where no noise within reach is the least.
    """
    from scipy.optimize import brentq

    @cache
    def too_much(log_nu: float) -> float:
        return cost(math.exp(log_nu)) - epsilon

    low, high = (_LEAST, _MOST) if near is None else _bracket(too_much, math.log(near))
    if not too_much(high) <= 0 < too_much(low):
        return None
    root = brentq(too_much, low, high, xtol=tolerance)  # in logarithms, so that it is relative
    while too_much(root) > 0:  # Brent's root may lie on either side
        root = min(root + tolerance, high)
    return math.exp(root)


def _bracket(too_much: Callable[[float], float], near: float) -> tuple[float, float]:
    """Two logarithms of noise multipliers, too little noise and enough, where within reach."""
    low = high = min(max(near, _LEAST), _MOST)
    step = _FIRST_STEP
    while too_much(high) > 0 and high < _MOST:
        low, high, step = high, min(high + step, _MOST), _GROWS * step
    while too_much(low) <= 0 and low > _LEAST:
        low, high, step = max(low - step, _LEAST), low, _GROWS * step
    return low, high
