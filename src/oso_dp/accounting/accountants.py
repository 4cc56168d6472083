"""Epsilon of ledgers by three privacy accountants.

`rdp`: Rényi differential privacy (dp_accounting), the default and the paper's. `pld`: privacy loss
distributions (dp_accounting), tighter; rdp's epsilon where that is smaller. `prv`: privacy random
variables (Opacus), between pld's epsilon and rdp's. The neighbouring relation is that of the
ledgers' sampling scheme and cannot be chosen separately.

RDP and PLD are upper bounds, so the smaller of the two is one. PLD and PRV compose losses by
Fourier transforms, whose rounding errors limit how small delta may be: see `smallest_delta`.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import GAUSSIAN, LAPLACE, Ledger, composed_event
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


@dataclass(frozen=True)
class Accountant:
    """A privacy accountant: its name and, if noise can be calibrated with it, to what accuracy."""

    name: str
    tolerance: float | None = None  # relative, of noise multipliers


ACCOUNTANTS = {
    one.name: one
    for one in (
        Accountant("rdp", 1e-9),
        Accountant("pld", 1e-5),  # its discretization is coarser than rdp's rounding
        Accountant("prv"),
    )
}
CALIBRATING = tuple(one.name for one in ACCOUNTANTS.values() if one.tolerance)

_INTEGER_ORDERS = [
    *map(float, range(2, 12)),
    14.0,
    16.0,
    20.0,
    24.0,
    32.0,
    48.0,
    63.0,
]  # a subset of dp_accounting's
_PLD_STEPS = {"pld": 1e-4, "pld_quick": 1e-3}  # discretization; the first is dp_accounting's
# Above these, pld and prv take minutes and gigabytes.
MAX_EPSILON, MAX_STEPS = 200.0, 2 * 10**6
# Composition by Fourier transforms in float64 changed delta by up to 5e-15, and 2e-17 per step,
# compared with the formula for one Gaussian sum (tests/accounting/test_accountant_bounds.py).
_ROUNDING, _ROUNDING_OF_A_STEP = 1e-13, 1e-16

Releases = Mapping[tuple[PoissonSampling, float], int]  # steps by sampling and noise multiplier


def compute_epsilon(ledgers: Iterable[Ledger], delta: float, accountant: str = "rdp") -> float:
    """Epsilon at delta of all releases of some ledgers together.

    Args:
        ledgers: on the same data, of one unit of privacy.
        delta: in (0, 1).
        accountant: "rdp", "pld" or "prv".

    Returns:
        Epsilon; 0 without releases, inf if a release has no noise. Where noise is not Gaussian, by
        rdp for any accountant.

    Raises:
        OsoError: for an unknown accountant, a delta out of range, ledgers of two units, and where
            prv cannot resolve delta or would take minutes.
    """
    ledgers = list(ledgers)
    if not all(ledger.is_gaussian for ledger in ledgers):
        return _rdp_epsilon_of_ledgers(ledgers, delta, accountant)
    releases: Counter[tuple[PoissonSampling, float]] = Counter()
    for ledger in ledgers:
        for nu, count in ledger.releases():
            releases[ledger.sampling, nu] += count
    return compute_epsilon_of_releases(releases, delta, accountant)


def compute_epsilon_of_releases(releases: Releases, delta: float, accountant: str = "rdp") -> float:
    """As `compute_epsilon`, of step counts by sampling scheme and noise multiplier."""
    if not releases:
        return 0.0
    _check_one_unit(sampling for sampling, _ in releases)
    if any(nu == 0 for _, nu in releases):
        return math.inf
    check_delta(delta)
    _check_accountant(accountant)
    rdp = _rdp_epsilon(releases, delta)
    if accountant == "rdp":
        return rdp
    if accountant == "pld":
        return min(rdp, _pld_epsilon(releases, delta)) if rdp <= MAX_EPSILON else rdp
    check_prv(delta, sum(releases.values()), rdp)
    return min(rdp, max(_prv_epsilon(releases, delta), _pld_epsilon(releases, delta)))


def _check_one_unit(samplings: Iterable[PoissonSampling]) -> None:
    units = sorted({sampling.unit.name for sampling in samplings})
    if len(units) > 1:
        raise OsoError(
            f"ledgers: protect {' and '.join(units)}; must protect one unit, since their epsilons "
            "do not add up"
        )


def _check_accountant(name: str) -> None:
    if name not in ACCOUNTANTS:
        raise OsoError(f"accountant: {name!r}; must be one of {', '.join(ACCOUNTANTS)}")


def compute_epsilon_of_event(
    sampling: PoissonSampling, event: DpEvent, delta: float, accountant: str
) -> float:
    """Epsilon at delta of a DpEvent on batches of `sampling`, by RDP or PLD alone."""
    check_delta(delta)
    with suppress_rdp_warnings():
        return float(make_accountant(accountant, sampling).compose(event).get_epsilon(delta))


def make_accountant(
    name: str, sampling: PoissonSampling, orders: Sequence[float] | None = None
) -> PrivacyAccountant:
    """A dp_accounting accountant for the neighbouring relation of the sampling scheme.

    Args:
        name: "rdp"; "rdp_quick", RDP at some integer orders, in a twentieth of the time; "pld";
            "pld_quick", with a discretization ten times coarser, in about a tenth of the time.
        sampling: the sampling scheme.
        orders: of rdp; None for all. Fewer orders give an upper bound on epsilon.

    Raises:
        OsoError: for an unknown name.
    """
    if name in ("rdp", "rdp_quick"):
        from oso_dp.privacy.dp_events import RdpAccountant

        orders = _INTEGER_ORDERS if name == "rdp_quick" else orders
        return RdpAccountant(orders, neighboring_relation=sampling.relation)
    if name in _PLD_STEPS:
        from dp_accounting.pld import PLDAccountant

        return PLDAccountant(sampling.relation, value_discretization_interval=_PLD_STEPS[name])
    raise OsoError(f"accountant: {name!r}; must be one of rdp, pld")


def nearby_orders(best: float) -> list[float]:
    """The orders of rdp between rdp_quick's neighbours of its `best` order.

    Epsilon nearly always falls and then rises with the order; rdp's best order is then among these.
    """
    lower = max((order for order in _INTEGER_ORDERS[:-1] if order < best), default=0.0)
    upper = min((order for order in _INTEGER_ORDERS[:-1] if order > best), default=math.inf)
    return [order for order in _rdp_orders() if lower <= order <= upper]


def spread_orders() -> list[float]:
    """Some orders of rdp over their complete range, chosen to be fast."""
    return [*_INTEGER_ORDERS, *(order for order in _rdp_orders() if order > _INTEGER_ORDERS[-1])]


def _rdp_orders() -> list[float]:
    from oso_dp.privacy.dp_events import RdpAccountant

    return [float(order) for order in RdpAccountant().orders]


def check_delta(delta: float) -> None:
    """Raise OsoError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise OsoError(f"delta: {delta:g}; must be > 0 and < 1")


def smallest_delta(steps: int) -> float:
    """The smallest delta at which pld and prv resolve epsilon of `steps` steps despite rounding."""
    return 100 * _rounding(steps)


def round_delta(delta: float, steps: int) -> float:
    """The delta to pass to PLD, smaller by the rounding error that could hide a part of delta.

    Rounding errors below 1e-5 delta are ignored: PLD's discretization is coarser.
    """
    rounding = _rounding(steps)
    return delta - rounding if rounding > 1e-5 * delta else delta


def _rounding(steps: int) -> float:
    return max(_ROUNDING, _ROUNDING_OF_A_STEP * steps)


def check_prv(delta: float, steps: int, rdp: float | None = None, name: str = "delta") -> None:
    """Raise OsoError where prv does not resolve delta after `steps` steps, or takes minutes.

    rdp: epsilon of these steps by RDP, if known. name: of the argument delta, for the message.
    """
    alternative = "use accountant rdp" + (
        "" if rdp is None else f", whose epsilon is {format_spent_epsilon(rdp)}"
    )
    smallest = smallest_delta(steps)
    if delta < smallest:
        raise OsoError(
            f"{name}: {delta!r}; must be >= {smallest:.4g} for accountant prv after {steps} steps; "
            f"{alternative}"
        )
    if steps > MAX_STEPS or (rdp is not None and rdp > MAX_EPSILON):
        raise OsoError(
            f"accountant: 'prv' for {steps:,} steps; takes minutes and gigabytes above epsilon "
            f"{MAX_EPSILON:g} or {MAX_STEPS:,} steps; {alternative}"
        )


def _rdp_epsilon(releases: Releases, delta: float) -> float:
    from oso_dp.privacy.dp_events import compute_epsilon

    orders = _rdp_orders()
    spent = sum(n * _step_rdp(sampling, nu) for (sampling, nu), n in releases.items())
    with suppress_rdp_warnings():
        return float(compute_epsilon(orders, spent, delta)[0])


def _rdp_epsilon_of_ledgers(ledgers: Sequence[Ledger], delta: float, accountant: str) -> float:
    """Of releases with any noise, which may fail: epsilon at delta - (1 + e^epsilon) failure.

    Failing changes each data set's distribution by at most `failure`, and the neighbour's counts
    e^epsilon times.
    """
    from oso_dp.privacy.dp_events import compute_epsilon

    _check_one_unit(ledger.sampling for ledger in ledgers)
    _check_accountant(accountant)
    check_delta(delta)
    orders, spent = _rdp_orders(), np.zeros(len(_rdp_orders()))
    for ledger in ledgers:
        ledger.check()
        for queries, count in ledger.steps:
            gaussian = [one.noise_multiplier for one in queries if one.distribution == GAUSSIAN]
            others = [one for one in queries if one.distribution != GAUSSIAN]
            if any(query.noise_multiplier == 0 for query in queries):
                return math.inf
            if gaussian:
                nu = combined_noise_multiplier(gaussian)
                spent = spent + count * _step_rdp(ledger.sampling, nu)
            for query in others:
                spent = spent + count * _query_rdp(query.distribution, query.noise_multiplier)
    failure = sum(ledger.failure for ledger in ledgers)
    epsilon = 0.0
    while epsilon < MAX_EPSILON and (covered := failure * (1 + math.exp(epsilon))) < delta:
        with suppress_rdp_warnings():
            needed = compute_epsilon(orders, spent, delta - covered)[0]
        if needed <= epsilon:
            return epsilon
        epsilon = float(needed) * (1 + 1e-9)  # so that the search ends
    return epsilon if failure == 0 else math.inf


@cache
def _query_rdp(distribution: str, noise_multiplier: float) -> np.ndarray:
    """The Rényi divergences of one query that is not Gaussian, one per order."""
    from oso_dp.privacy.dp_events import RdpAccountant, dp_event, privacy_accountant

    if distribution == LAPLACE:
        return RdpAccountant().compose(dp_event.LaplaceDpEvent(noise_multiplier)).rdp
    epsilon, orders = 1 / noise_multiplier, np.array(_rdp_orders())
    # Of any mechanism with this epsilon at delta = 0 (Bun and Steinke 2016).
    bound = np.minimum(epsilon, orders * epsilon**2 / 2)
    if not 1e-3 < epsilon < 500:  # where the next cancels, or overflows
        return bound
    # Whatever has this epsilon at delta = 0 is no easier to tell apart than a randomized response.
    response = dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)
    relation = privacy_accountant.NeighboringRelation.REPLACE_ONE  # that of the response itself
    accountant = RdpAccountant(neighboring_relation=relation).compose(response)
    return np.minimum(bound, np.maximum(accountant.rdp, 0.0))


@cache  # a study's grids share few noise multipliers, and composing adds up
def _step_rdp(sampling: PoissonSampling, noise_multiplier: float) -> np.ndarray:
    """The Rényi divergences of one step, one per order."""
    from oso_dp.privacy.dp_events import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=sampling.relation)
    with suppress_rdp_warnings():
        return accountant.compose(composed_event({(sampling, noise_multiplier): 1})).rdp


def _pld_epsilon(releases: Releases, delta: float) -> float:
    """By PLD alone; inf where it does not resolve delta."""
    steps = sum(releases.values())
    if delta < smallest_delta(steps):
        return math.inf
    spent = (_step_pld(sampling, nu).self_compose(n) for (sampling, nu), n in releases.items())
    composed = reduce(lambda total, pld: total.compose(pld), spent)
    return float(composed.get_epsilon_for_delta(round_delta(delta, steps)))


@lru_cache(8)  # takes most of the time; megabytes each where the noise is small
def _step_pld(sampling: PoissonSampling, noise_multiplier: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        value_discretization_interval=_PLD_STEPS["pld"],
        sampling_prob=sampling.rate,
        neighboring_relation=sampling.relation,
    )


def _prv_epsilon(releases: Releases, delta: float) -> float:
    """By PRV alone; inf where its discretization fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns when it is imported
        from opacus.accountants import PRVAccountant

        accountant = PRVAccountant()  # Poisson sampling, add-or-remove-one, as PoissonSampling
        accountant.history = [(nu, sampling.rate, n) for (sampling, nu), n in releases.items()]
        try:
            return float(accountant.get_epsilon(delta))
        except (RuntimeError, ValueError):
            return math.inf


@contextmanager
def suppress_rdp_warnings() -> Iterator[None]:
    """Silence warnings about orders that do not converge: omitting an order only raises epsilon."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
