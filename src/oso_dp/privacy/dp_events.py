"""dp_accounting's events and RDP accountant, imported without the rest of that package.

`import dp_accounting` also loads privacy loss distributions and takes 2 s, three times what RDP
needs, which is noticeable in `oso calibrate`. So these modules are imported without the package's
`__init__`. A later `import dp_accounting` works as usual and contains these same modules.
"""

import importlib.util
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.special import gammaln


@contextmanager
def _without_initialisation(package: str) -> Iterator[None]:
    if package in sys.modules:
        yield
        return
    spec = importlib.util.find_spec(package)
    assert spec is not None
    sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[package]


with _without_initialisation("dp_accounting"):
    from dp_accounting import dp_event, privacy_accountant, rdp
    from dp_accounting.rdp import compute_epsilon

__all__ = [
    "RdpAccountant",
    "compute_epsilon",
    "dp_event",
    "privacy_accountant",
]

# Rényi divergences of a step below it are computed without cancellation: of whole orders, and of
# others, for which the next whole order's is taken, which may be twice as large.
_CANCELLING, _CANCELLING_BETWEEN = 1e-10, 1e-12


class RdpAccountant(rdp.RdpAccountant):
    """dp_accounting's, also for very small divergences of a subsampled Gaussian sum.

    That takes the logarithm of a number close to 1, which is rounded: below 0 even, and then its
    epsilon is 0.
    """

    _rdp: np.ndarray

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        sampled = isinstance(event, dp_event.PoissonSampledDpEvent)
        if not (do_compose and sampled and isinstance(event.event, dp_event.GaussianDpEvent)):
            return super()._maybe_compose(event, count, do_compose)
        before, self._rdp = self._rdp, np.zeros_like(self._rdp)
        error = super()._maybe_compose(event, 1, do_compose)
        step, self._rdp = self._rdp, before
        if error is None:
            rate, nu = event.sampling_probability, event.event.noise_multiplier
            is_whole = self._orders == np.floor(self._orders)
            small = step < np.where(is_whole, _CANCELLING, _CANCELLING_BETWEEN)
            for place in np.flatnonzero(small) if 0 < rate < 1 else ():
                exact = _subsampled_gaussian_rdp(rate, nu, self._orders[place])
                step[place] = max(step[place], exact)
            self._rdp = before + count * step
        return error


def _subsampled_gaussian_rdp(rate: float, nu: float, order: float) -> float:
    """At the order, rounded up: A - 1 is a sum of positive terms (Mironov et al. 2019, (6))."""
    alpha = math.ceil(order)
    k = np.arange(2, alpha + 1)
    exponent = k * (k - 1) / (2 * nu**2)
    binomial = gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
    weight = k * math.log(rate) + (alpha - k) * math.log1p(-rate)
    with np.errstate(divide="ignore"):  # the exponent may underflow
        terms = binomial + weight + exponent + np.log(-np.expm1(-exponent))
    return float(np.log1p(np.exp(terms).sum()) / (alpha - 1))
