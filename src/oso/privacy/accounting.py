"""The price: epsilon of a ledger, and the noise that a budget for a whole grid asks for.

A grid of N runs of T steps is N x T Poisson-subsampled Gaussians (Galli et al., "Privacy Analysis"
and "Experiments"; neighbours differ by one example added or removed). Rényi accounting by
dp_accounting.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from oso.errors import OsoError
from oso.privacy.ledger import Ledger

_SMALLEST, _LARGEST = 0.05, 1e4  # noise multipliers between which the search looks


def epsilon_of(ledgers: Iterable[Ledger], delta: float) -> float:
    """Epsilon at delta of all the ledgers' releases together (inf if one is not private)."""
    accountant = RdpAccountant()
    with _quiet():
        for ledger in ledgers:
            accountant.compose(ledger.event())
        return float(accountant.get_epsilon(delta))


def grid_noise_multiplier(
    epsilon: float, delta: float, sampling_rate: float, steps: int, runs: int
) -> float:
    """The noise multiplier nu of each step of each run, such that all runs together cost epsilon.

    `steps` per run, `runs` in the grid. Raises OsoError if no noise within reach meets the budget.
    """

    def event(noise_multiplier: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(
            sampling_rate, dp_accounting.GaussianDpEvent(noise_multiplier)
        )
        return dp_accounting.SelfComposedDpEvent(step, steps * runs)

    def cost(noise_multiplier: float) -> float:
        return float(RdpAccountant().compose(event(noise_multiplier)).get_epsilon(delta))

    with _quiet():
        cheapest, dearest = cost(_LARGEST), cost(_SMALLEST)
    if not cheapest <= epsilon < dearest:
        raise OsoError(
            f"epsilon {epsilon:g}: no noise meets it with {runs} runs of {steps} steps at "
            f"delta {delta:g}; allowed is {cheapest:.3g} to {dearest:.3g}"
        )
    # The search's tolerance is absolute and it ends on the side that respects the budget.
    with _quiet():
        return float(
            dp_accounting.calibrate_dp_mechanism(
                RdpAccountant,
                event,
                epsilon,
                delta,
                dp_accounting.ExplicitBracketInterval(_SMALLEST, _LARGEST),
                tol=1e-6,
            )
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the notes on orders that do not converge: leaving them out is on the safe side."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
