"""What a hyperparameter search costs: the noise that all its runs need under one budget.

`composition`: all N runs of T steps are released, N x T subsampled Gaussians (Galli et al.,
"Experiments"). `random_stopping`: candidates are drawn at random from the grid, a random number of
times, and only the best is released (Papernot and Steinke 2022); its privacy cost grows far more
slowly with the mean number of runs, and nobody knows beforehand how many there will be. `single`:
one run, without a search.
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
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, composed_event
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# The distribution of the number of runs, as a truncated negative binomial's shape.
STOPPING_ETA = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
_MAX_STEPS_OR_RUNS = 10**9  # steps, runs
_TOLERANCE = {"rdp": 1e-9, "pld": 1e-5}  # relative; PLD's own discretization is coarser than that


@dataclass(frozen=True)
class Search:
    """A search: `runs` trainings of `steps` steps each on Poisson batches.

    `runs`: N under composition, the mean number under random stopping. `shape` (random stopping
    only): logarithmic (0), geometric (1), poisson (inf), or any number from 0. `before` (not under
    random stopping): what was released earlier out of the same budget, noise multipliers of steps
    on such batches and how many of these there were. OsoError names a value out of range.
    """

    sampling: PoissonSampling
    steps: int
    runs: int
    search_accounting: str = COMPOSITION
    stopping_eta: float = STOPPING_ETA["geometric"]
    prior_releases: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("runs", self.runs)):
            if not 1 <= value <= _MAX_STEPS_OR_RUNS:
                raise OsoError(
                    f"{name} {value}: must be at least 1 and at most {_MAX_STEPS_OR_RUNS:g}"
                )
        if self.search_accounting not in SINGLE_NOISE_SEARCHES:
            raise OsoError(
                f"search_accounting {self.search_accounting!r}: allowed are "
                f"{', '.join(SINGLE_NOISE_SEARCHES)}"
            )
        if self.search_accounting == RANDOM_STOPPING and self.prior_releases:
            raise OsoError("before: what came earlier is not accounted for by random stopping")
        if not self.stopping_eta >= 0:
            raise OsoError(f"shape {self.stopping_eta:g}: must be at least 0")
        if self.search_accounting == RANDOM_STOPPING and self.runs == 1:
            raise OsoError("runs 1: random stopping needs a mean of more than one run")
        if self.search_accounting == SINGLE and self.runs != 1:
            raise OsoError(
                f"runs {self.runs}: search_accounting {SINGLE} is one run, without a search"
            )

    def epsilon(self, noise_multiplier: float, delta: float, accountant: str = "rdp") -> float:
        """Epsilon at delta of the whole search when each step's sums together have nu.

        By pld: the smaller one of its epsilon and rdp's.
        """
        check_delta(delta)
        if not SMALLEST_NOISE <= noise_multiplier <= LARGEST_NOISE:
            raise OsoError(
                f"noise multiplier {noise_multiplier:g}: must be {SMALLEST_NOISE:g} to "
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
        """The least nu of a step, such that the whole search costs no more than epsilon at delta.

        Up to `tolerance` (relative) and never below it. By pld: the smaller one of its noise and
        rdp's. Raises OsoError if no noise within reach meets the budget.
        """
        check_delta(delta)
        if not 0 < epsilon < math.inf:
            raise OsoError(f"epsilon {epsilon:g}: must be above 0 and finite")
        if accountant not in _TOLERANCE:
            known = ", ".join(_TOLERANCE)
            raise OsoError(f"accountant {accountant!r}: not known; allowed are {known}")
        if accountant == "pld":
            self._check_pld(epsilon)

        tolerance = tolerance or _TOLERANCE[accountant]
        if accountant == "rdp":
            nu = self._by_rdp(epsilon, delta, tolerance)
        else:
            nu = self._by_pld(epsilon, delta, tolerance)
        if nu is None:
            message = (
                f"no noise multiplier between {SMALLEST_NOISE:g} and {LARGEST_NOISE:g} meets it"
            )
            if self._costs("rdp", delta)(SMALLEST_NOISE) <= epsilon:
                message = f"noise multiplier {SMALLEST_NOISE:g}, the least looked for, costs less"
            raise OsoError(
                f"epsilon {epsilon:g}: {message} at delta {delta!r}; {self.runs} x {self.steps} "
                "steps"
            )
        return nu

    def _by_pld(self, epsilon: float, delta: float, tolerance: float) -> float | None:
        """The smaller one of the least nu by pld and by rdp; rdp's where pld resolves no delta."""
        rdp, pld = self._by_rdp(epsilon, delta, 1e-3), None
        if rdp is None and self._costs("rdp", delta)(SMALLEST_NOISE) <= epsilon:
            return None
        if delta >= smallest_delta(self._all_steps):
            begin = rdp or LARGEST_NOISE
            near = calibrate_noise_multiplier(self._costs("pld_quick", delta), epsilon, 1e-4, begin)
            pld = calibrate_noise_multiplier(
                self._costs("pld", delta), epsilon, tolerance, near or begin
            )
        if pld is not None and (rdp is None or pld < rdp * (1 - 1e-3)):
            return pld
        exact = self._by_rdp(epsilon, delta, _TOLERANCE["rdp"])
        return min((nu for nu in (pld, exact) if nu is not None), default=None)

    def _by_rdp(self, epsilon: float, delta: float, tolerance: float) -> float | None:
        """The least nu, from looks at few orders where they say the same as all of them."""
        at_all = self._costs("rdp", delta)
        near = calibrate_noise_multiplier(self._costs("rdp_quick", delta), epsilon, 1e-3)
        if near is None:
            return calibrate_noise_multiplier(at_all, epsilon, tolerance)
        if self.search_accounting != RANDOM_STOPPING:  # which looks at all orders together
            few = nearby_orders(self._best_order("rdp_quick", near, delta))
            nu = calibrate_noise_multiplier(
                self._costs("rdp", delta, few), epsilon, tolerance, near
            )
            if nu is not None:
                enough = self._costs("rdp", delta, spread_orders())(0.99 * nu) <= epsilon
                best = self._best_order("rdp", nu, delta, few)
                if not enough and few[0] < best < few[-1]:
                    return nu
        return calibrate_noise_multiplier(at_all, epsilon, tolerance, near)

    def _costs(
        self, accountant: str, delta: float, orders: Sequence[float] | None = None
    ) -> Callable[[float], float]:
        """Epsilon of a noise multiplier, by this accountant alone."""
        asked = delta if accountant.startswith("rdp") else round_delta(delta, self._all_steps)

        def cost(noise_multiplier: float) -> float:
            with suppress_rdp_warnings():
                spent = make_accountant(accountant, self.sampling, orders)
                return float(spent.compose(self._event(noise_multiplier)).get_epsilon(asked))

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
        """Of all runs (under random stopping the mean number), and of what came before."""
        return self.runs * self.steps + sum(count for _, count in self.prior_releases)

    def _check_pld(self, epsilon: float) -> None:
        if self.search_accounting == RANDOM_STOPPING:
            raise OsoError("accountant pld: random stopping is accounted for by rdp only")
        if epsilon > MAX_EPSILON:
            raise OsoError(
                f"accountant pld: epsilon {epsilon:.4g} is above {MAX_EPSILON:g}, where it takes "
                "minutes and gigabytes; rdp does not"
            )
        earlier = self._all_steps - self.runs * self.steps
        if self._all_steps > MAX_STEPS:
            after = f" after {earlier} earlier ones" if earlier else ""
            raise OsoError(
                f"accountant pld: {self.runs} runs x {self.steps} steps{after} are more than "
                f"{MAX_STEPS:,}, where it takes minutes and rounds coarsely; rdp does not"
            )


def compute_random_stopping_epsilon(
    one: Ledger, mean_runs: int, shape: float, delta: float
) -> float:
    """Epsilon at delta of a search by random stopping none of whose candidates costs more than one.

    By RDP. Which candidate is drawn does not depend on the data, so that a draw costs at most what
    the costliest candidate does. OsoError for a mean or a shape that `Search` refuses.
    """
    Search(one.sampling, 1, mean_runs, RANDOM_STOPPING, shape)
    return compute_epsilon_of_event(
        one.sampling, _random_stopping_event(one.event(), mean_runs, shape), delta, "rdp"
    )


def infer_stopping_distribution(
    search: Search, noise_multiplier: float, budget: float, delta: float
) -> str | None:
    """The name of the shape (`SHAPES`) that a search by random stopping bought with this noise.

    The one whose cost comes nearest to the budget from below; None where none comes within a
    thousandth of it: the noise is that of no such search. The search's own shape is not looked at.
    """
    nearest: tuple[float, str] | None = None
    for name, shape in STOPPING_ETA.items():
        spent = replace(search, stopping_eta=shape).epsilon(noise_multiplier, delta)
        if budget * 0.999 <= spent <= budget * (1 + 1e-9):
            nearest = max(nearest or (spent, name), (spent, name))
    return nearest[1] if nearest else None


def _random_stopping_event(one: DpEvent, mean_runs: int, shape: float) -> DpEvent:
    """A random number of runs, each of which costs `one`; only the best is released."""
    from oso_dp.privacy.dp_events import dp_event

    return dp_event.RepeatAndSelectDpEvent(one, mean_runs, shape)
