"""The privacy cost of a composition of runs, and calibration of its noise to one budget.

Each evaluation of an accountant is slow, and PLD takes minutes at very small noise. So no noise
multiplier is evaluated twice, and a faster accountant's result is the starting point.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from oso_dp.accounting.accountants import (
    ACCOUNTANTS,
    CALIBRATING,
    MAX_EPSILON,
    MAX_STEPS,
    check_delta,
    compute_epsilon_of_event,
    make_accountant,
    nearby_orders,
    round_delta,
    smallest_delta,
    spread_orders,
    suppress_rdp_warnings,
)
from oso_dp.defaults import MAX_COUNT
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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


@dataclass(frozen=True)
class Search:
    """`runs` trainings of `steps` steps each on Poisson batches, all of which are released.

    Attributes:
        sampling: the sampling scheme of all steps.
        steps: T, of each training; 1 to 1e9.
        runs: N; 1 to 1e9.
        prior_releases: (noise multiplier, steps) of earlier releases on such batches from the same
            budget.

    Raises:
        OsoError: for a value out of range, or values that exclude one another.

    Example:
        >>> Search(PoissonSampling.of(512, 60000), steps=1172, runs=9).noise_multiplier(3.0, 1e-5)
    """

    sampling: PoissonSampling
    steps: int
    runs: int
    prior_releases: tuple[tuple[float, int], ...] = ()

    # Whether one Rényi order gives epsilon, so that few of them are enough to calibrate.
    _has_best_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("runs", self.runs)):
            if not 1 <= value <= MAX_COUNT:
                raise OsoError(f"{name}: {value}; must be >= 1 and <= {MAX_COUNT:g}")

    def epsilon(self, noise_multiplier: float, delta: float, accountant: str = "rdp") -> float:
        """Epsilon at delta of the complete search.

        Args:
            noise_multiplier: nu of each step, of all its queries together; 0.05 to 1e4.
            delta: in (0, 1).
            accountant: "rdp" or "pld". With pld, the smaller one of its epsilon and rdp's.

        Raises:
            OsoError: for a value out of range, and where pld would take minutes.
        """
        check_delta(delta)
        if not SMALLEST_NOISE <= noise_multiplier <= LARGEST_NOISE:
            raise OsoError(
                f"noise_multiplier: {noise_multiplier:g}; must be >= {SMALLEST_NOISE:g} and <= "
                f"{LARGEST_NOISE:g}"
            )
        event = self._event(noise_multiplier)
        if accountant != "pld":
            return compute_epsilon_of_event(self.sampling, event, delta, accountant)
        rdp = compute_epsilon_of_event(self.sampling, event, delta, "rdp")
        self._check_pld(rdp)
        if delta < smallest_delta(self._all_steps):
            return rdp
        return min(rdp, self._costs("pld", delta)(noise_multiplier))

    def noise_multiplier(
        self, epsilon: float, delta: float, accountant: str = "rdp", tolerance: float | None = None
    ) -> float:
        """The smallest nu of a step such that the complete search costs at most epsilon at delta.

        Args:
            epsilon: the budget; > 0 and finite.
            delta: in (0, 1).
            accountant: "rdp" or "pld". With pld, the smaller one of its noise multiplier and rdp's.
            tolerance: relative. Default: 1e-9 for rdp, 1e-5 for pld.

        Returns:
            The noise multiplier, never below the exact value.

        Raises:
            OsoError: if no noise multiplier from 0.05 to 1e4 meets the budget, for a value out of
                range, and where pld would take minutes.
        """
        check_delta(delta)
        if not 0 < epsilon < math.inf:
            raise OsoError(f"epsilon: {epsilon:g}; must be > 0 and finite")
        if accountant not in CALIBRATING:
            allowed = ", ".join(CALIBRATING)
            raise OsoError(f"accountant: {accountant!r}; must be one of {allowed}")
        if accountant == "pld":
            self._check_pld(epsilon)

        tolerance = tolerance or ACCOUNTANTS[accountant].tolerance or 0.0
        if accountant == "rdp":
            nu = self._by_rdp(epsilon, delta, tolerance)
        else:
            nu = self._by_pld(epsilon, delta, tolerance)
        if nu is None:
            message = f"no noise multiplier from {SMALLEST_NOISE:g} to {LARGEST_NOISE:g} meets it"
            most = self._costs("rdp", delta)(SMALLEST_NOISE)
            if most <= epsilon:
                message = (
                    f"must be at most {most:.4g}, the cost of the smallest noise multiplier, "
                    f"{SMALLEST_NOISE:g},"
                )
            raise OsoError(
                f"epsilon: {epsilon:g}; {message} at delta {delta!r} for {self.runs} x "
                f"{self.steps} steps"
            )
        return nu

    def _by_pld(self, epsilon: float, delta: float, tolerance: float) -> float | None:
        """The smaller nu of pld's and rdp's; rdp's where pld does not resolve delta."""
        rdp, pld = self._by_rdp(epsilon, delta, 1e-3), None
        if rdp is None and self._costs("rdp", delta)(SMALLEST_NOISE) <= epsilon:
            return None
        if delta >= smallest_delta(self._all_steps):
            start = rdp or LARGEST_NOISE
            near = calibrate_noise_multiplier(self._costs("pld_quick", delta), epsilon, 1e-4, start)
            pld = calibrate_noise_multiplier(
                self._costs("pld", delta), epsilon, tolerance, near or start
            )
        if pld is not None and (rdp is None or pld < rdp * (1 - 1e-3)):
            return pld
        exact = self._by_rdp(epsilon, delta, ACCOUNTANTS["rdp"].tolerance or 0.0)
        return min((nu for nu in (pld, exact) if nu is not None), default=None)

    def _by_rdp(self, epsilon: float, delta: float, tolerance: float) -> float | None:
        """The smallest nu, computed at few orders where these give the same as all orders."""
        all_orders = self._costs("rdp", delta)
        near = calibrate_noise_multiplier(self._costs("rdp_quick", delta), epsilon, 1e-3)
        if near is None:
            return calibrate_noise_multiplier(all_orders, epsilon, tolerance)
        if self._has_best_order:
            few = nearby_orders(self._best_order("rdp_quick", near, delta))
            nu = calibrate_noise_multiplier(
                self._costs("rdp", delta, few), epsilon, tolerance, near
            )
            if nu is not None:
                enough = self._costs("rdp", delta, spread_orders())(0.99 * nu) <= epsilon
                best = self._best_order("rdp", nu, delta, few)
                if not enough and few[0] < best < few[-1]:
                    return nu
        return calibrate_noise_multiplier(all_orders, epsilon, tolerance, near)

    def _costs(
        self, accountant: str, delta: float, orders: Sequence[float] | None = None
    ) -> Callable[[float], float]:
        """Epsilon as a function of the noise multiplier, by this accountant alone."""
        safe_delta = delta if accountant.startswith("rdp") else round_delta(delta, self._all_steps)

        def cost(noise_multiplier: float) -> float:
            with suppress_rdp_warnings():
                spent = make_accountant(accountant, self.sampling, orders)
                return float(spent.compose(self._event(noise_multiplier)).get_epsilon(safe_delta))

        return cost

    def _best_order(
        self, accountant: str, nu: float, delta: float, orders: Sequence[float] | None = None
    ) -> float:
        """The Rényi order that gives epsilon."""
        with suppress_rdp_warnings():
            spent = make_accountant(accountant, self.sampling, orders).compose(self._event(nu))
            return float(spent.get_epsilon_and_optimal_order(delta)[1])

    def _event(self, noise_multiplier: float) -> DpEvent:
        releases = Counter({(self.sampling, noise_multiplier): self.runs * self.steps})
        for earlier, count in self.prior_releases:  # perhaps with the same noise
            releases[self.sampling, earlier] += count
        return composed_event(releases)

    @property
    def _all_steps(self) -> int:
        """Of all runs and of the prior releases."""
        return self.runs * self.steps + sum(count for _, count in self.prior_releases)

    def _check_pld(self, epsilon: float) -> None:
        if epsilon > MAX_EPSILON:
            raise OsoError(
                f"accountant: 'pld' at epsilon {epsilon:.4g}; takes minutes and gigabytes above "
                f"{MAX_EPSILON:g}, use 'rdp'"
            )
        earlier = self._all_steps - self.runs * self.steps
        if self._all_steps > MAX_STEPS:
            after = f" after {earlier} earlier ones" if earlier else ""
            raise OsoError(
                f"accountant: 'pld' for {self.runs} runs x {self.steps} steps{after}; takes "
                f"minutes and rounds coarsely above {MAX_STEPS:,} steps, use 'rdp'"
            )
