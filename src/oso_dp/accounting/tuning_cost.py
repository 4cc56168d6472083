"""The privacy cost of a hyperparameter search, and calibration of its noise to one budget.

`composition`: all N runs of T steps are released, N x T subsampled Gaussians (Galli et al. 2024,
"Experiments"). `random_stopping`: a random number of random grid points is trained, and only the
best is released (Papernot and Steinke 2022); the cost grows far more slowly with the mean number of
runs, but their number is not known in advance. `single`: one run, without a search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oso_dp.accounting.accountants import (
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
from oso_dp.accounting.calibration import LARGEST_NOISE, SMALLEST_NOISE, calibrate_noise_multiplier
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    RANDOM_STOPPING,
    SINGLE,
    SINGLE_NOISE_SEARCHES,
)
from oso_dp.defaults import ROUNDING, STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, composed_event
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# eta of the truncated negative binomial distribution of the number of runs; inf for Poisson.
STOPPING_ETA = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
_MAX_STEPS_OR_RUNS = 10**9
_TOLERANCE = {"rdp": 1e-9, "pld": 1e-5}  # relative; PLD's discretization is coarser than that


@dataclass(frozen=True)
class Search:
    """A hyperparameter search: `runs` trainings of `steps` steps each on Poisson batches.

    Attributes:
        sampling: the sampling scheme of all steps.
        steps: T, of each training; 1 to 1e9.
        runs: N under composition, the mean number of runs under random stopping; 1 to 1e9.
        search_accounting: "composition", "random_stopping" or "single".
        stopping_eta: eta >= 0 of the distribution of the number of runs (random stopping only): 0
            is logarithmic, 1 geometric, inf Poisson.
        prior_releases: (noise multiplier, steps) of earlier releases on such batches from the same
            budget (not under random stopping).

    Raises:
        OsoError: for a value out of range, or values that exclude one another.

    Example:
        >>> Search(PoissonSampling.of(512, 60000), steps=1172, runs=9).noise_multiplier(3.0, 1e-5)
    """

    sampling: PoissonSampling
    steps: int
    runs: int
    search_accounting: str = COMPOSITION
    stopping_eta: float = STOPPING_ETA[STOPPING_DISTRIBUTION]
    prior_releases: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("runs", self.runs)):
            if not 1 <= value <= _MAX_STEPS_OR_RUNS:
                raise OsoError(f"{name}: {value}; must be >= 1 and <= {_MAX_STEPS_OR_RUNS:g}")
        if self.search_accounting not in SINGLE_NOISE_SEARCHES:
            raise OsoError(
                f"search_accounting: {self.search_accounting!r}; must be one of "
                f"{', '.join(SINGLE_NOISE_SEARCHES)}"
            )
        if self.search_accounting == RANDOM_STOPPING and self.prior_releases:
            raise OsoError("prior_releases: not supported by search_accounting random_stopping")
        if not self.stopping_eta >= 0:
            raise OsoError(f"stopping_eta: {self.stopping_eta:g}; must be >= 0")
        if self.search_accounting == RANDOM_STOPPING and self.runs == 1:
            raise OsoError("runs: 1; must be > 1 (the mean) for search_accounting random_stopping")
        if self.search_accounting == SINGLE and self.runs != 1:
            raise OsoError(f"runs: {self.runs}; must be 1 for search_accounting {SINGLE}")

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
        if accountant not in _TOLERANCE:
            allowed = ", ".join(_TOLERANCE)
            raise OsoError(f"accountant: {accountant!r}; must be one of {allowed}")
        if accountant == "pld":
            self._check_pld(epsilon)

        tolerance = tolerance or _TOLERANCE[accountant]
        if accountant == "rdp":
            nu = self._by_rdp(epsilon, delta, tolerance)
        else:
            nu = self._by_pld(epsilon, delta, tolerance)
        if nu is None:
            message = f"no noise multiplier from {SMALLEST_NOISE:g} to {LARGEST_NOISE:g} meets it"
            if self._costs("rdp", delta)(SMALLEST_NOISE) <= epsilon:
                message = f"the smallest noise multiplier, {SMALLEST_NOISE:g}, costs less"
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
        exact = self._by_rdp(epsilon, delta, _TOLERANCE["rdp"])
        return min((nu for nu in (pld, exact) if nu is not None), default=None)

    def _by_rdp(self, epsilon: float, delta: float, tolerance: float) -> float | None:
        """The smallest nu, computed at few orders where these give the same as all orders."""
        all_orders = self._costs("rdp", delta)
        near = calibrate_noise_multiplier(self._costs("rdp_quick", delta), epsilon, 1e-3)
        if near is None:
            return calibrate_noise_multiplier(all_orders, epsilon, tolerance)
        if self.search_accounting != RANDOM_STOPPING:  # which combines all orders
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
        if self.prior_releases:
            releases = Counter({(self.sampling, noise_multiplier): self.runs * self.steps})
            for earlier, count in self.prior_releases:  # perhaps with the same noise
                releases[self.sampling, earlier] += count
            return composed_event(releases)
        if self.search_accounting != RANDOM_STOPPING:
            return composed_event({(self.sampling, noise_multiplier): self.steps * self.runs})
        one = composed_event({(self.sampling, noise_multiplier): self.steps})
        return _random_stopping_event(one, self.runs, self.stopping_eta)

    @property
    def _all_steps(self) -> int:
        """Of all runs (of the mean number under random stopping) and of the prior releases."""
        return self.runs * self.steps + sum(count for _, count in self.prior_releases)

    def _check_pld(self, epsilon: float) -> None:
        if self.search_accounting == RANDOM_STOPPING:
            raise OsoError("accountant: 'pld'; must be 'rdp' for random stopping")
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
    Search(candidate.sampling, 1, mean_runs, RANDOM_STOPPING, eta)
    event = _random_stopping_event(candidate.event(), mean_runs, eta)
    return compute_epsilon_of_event(candidate.sampling, event, delta, "rdp")


def infer_stopping_distribution(
    search: Search, noise_multiplier: float, budget: float, delta: float
) -> str | None:
    """The stopping distribution with which this noise was calibrated to the budget.

    Returns:
        The name in `STOPPING_ETA` whose cost is nearest to the budget from below; None if no cost
        is within 0.1 % of it. `search.stopping_eta` is ignored.
    """
    nearest: tuple[float, str] | None = None
    for name, eta in STOPPING_ETA.items():
        spent = replace(search, stopping_eta=eta).epsilon(noise_multiplier, delta)
        if budget * 0.999 <= spent <= budget * (1 + ROUNDING):
            nearest = max(nearest or (spent, name), (spent, name))
    return nearest[1] if nearest else None


def _random_stopping_event(run: DpEvent, mean_runs: int, eta: float) -> DpEvent:
    """A random number of runs, each of which costs `run`; only the best is released."""
    from oso_dp.privacy.dp_events import dp_event

    return dp_event.RepeatAndSelectDpEvent(run, mean_runs, eta)
