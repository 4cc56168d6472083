"""The steps of an Opacus accountant: their noise for a budget, and their agreement with ledgers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from opacus.accountants import IAccountant
from opacus.accountants.utils import get_noise_multiplier

from oso_dp.accounting.accountants import check_prv, compute_epsilon_of_releases
from oso_dp.accounting.search import SMALLEST_NOISE, Search
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling

_MAX_EPSILON_FOR_PRV = 100.0


def check_target(
    epsilon: float, delta: float, batches: int, steps: int, accountant: IAccountant
) -> None:
    """OsoError for a budget that Opacus's calibration cannot meet, or a delta too small for PRV.

    For too large a budget, Opacus's search for the noise multiplier does not terminate.
    """
    if accountant.mechanism() == "prv" and epsilon > _MAX_EPSILON_FOR_PRV:
        raise OsoError(
            f"target_epsilon: {epsilon:g}; must be <= {_MAX_EPSILON_FOR_PRV:g} with accountant "
            "prv, which needs minutes and gigabytes above; use accountant rdp"
        )
    if accountant.mechanism() == "prv":
        check_prv(delta, steps, name="target_delta")
    max_epsilon = Search(PoissonSampling(1 / batches), steps, 1).epsilon(SMALLEST_NOISE, delta)
    if epsilon > max_epsilon:
        raise OsoError(
            f"target_epsilon: {epsilon:g}; must be <= {max_epsilon:.4g}, the cost of {steps} steps "
            f"at the smallest noise multiplier, {SMALLEST_NOISE:g}"
        )


def calibrate_noise_multiplier(
    accountant: str, epsilon: float, delta: float, batches: int, steps: int, tolerance: float
) -> float:
    """A noise multiplier whose steps cost at most epsilon, as `get_epsilon` computes it.

    This is Opacus's; with prv, that of rdp if it is smaller, or if Opacus's costs more by PLD.
    """
    rdp, sampling = math.inf, PoissonSampling(1 / batches)
    try:
        found = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=sampling.rate,
            steps=steps,
            accountant=accountant,
            epsilon_tolerance=tolerance,
        )
    except (RuntimeError, ValueError) as error:
        if accountant != "prv":
            raise OsoError(f"target_epsilon: {epsilon:g}; {error}") from error
        found = math.inf
    if accountant == "prv":
        rdp = Search(sampling, steps, 1).noise_multiplier(epsilon, delta)
        if (
            found < rdp
            and compute_epsilon_of_releases({(sampling, found): steps}, delta, "prv") > epsilon
        ):
            found = rdp
    return min(found, rdp)


def convert_history(accountant: IAccountant) -> Counter[tuple[PoissonSampling, float]]:
    """The accountant's numbers of steps, by sampling and noise multiplier."""
    counts: Counter[tuple[PoissonSampling, float]] = Counter()
    for nu, rate, steps in accountant.history:
        counts[PoissonSampling(rate), nu] += steps
    return counts


def check_history(accountant: IAccountant, ledgers: Sequence[Ledger]) -> None:
    """OsoError unless the accountant has each step of the ledgers, with no more noise."""
    released: dict[float, list[tuple[float, int]]] = defaultdict(list)
    accounted: dict[float, list[tuple[float, int]]] = defaultdict(list)
    for ledger in ledgers:
        released[ledger.sampling.rate] += ledger.releases()
    for nu, rate, steps in accountant.history:
        accounted[rate].append((nu * (1 - 2 * ROUNDING), steps))
    for rate, steps_of_rate in released.items():
        noise, needed = _count_up(steps_of_rate)
        known, counts = _count_up(accounted[rate])
        found = np.append([0], counts)[np.searchsorted(known, noise, side="right")]
        if (needed > found).any():
            first = int(np.argmax(needed > found))
            raise OsoError(
                f"get_epsilon: the optimizers' ledgers have {needed[first]} steps, the accountant "
                f"has {found[first]} (at sampling rate {rate:g}, with noise multipliers up to "
                f"{noise[first]:g}); also load the accountant's state (load_checkpoint loads both)"
            )


def _count_up(steps: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers in ascending order, and how many steps have at most that."""
    ascending = sorted(steps)
    return np.array([nu for nu, _ in ascending]), np.cumsum(
        [count for _, count in ascending], dtype=np.int64
    )
