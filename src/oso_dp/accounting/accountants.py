"""Epsilon of what ledgers say was released, by three accountants.

`rdp`: Rényi differential privacy (dp_accounting), the study's own and the paper's. `pld`: privacy
loss distributions (dp_accounting), tighter; rdp's epsilon where that is smaller. `prv`: privacy
random variables (Opacus), between pld's epsilon and rdp's. An accountant is made for the
neighbouring relation of the ledgers' sampling scheme; it cannot be chosen apart from it.

RDP and PLD are upper bounds, so the smaller of them is one. PLD and PRV compose losses by Fourier
transforms, whose rounding errors hide a very small delta: see `smallest_delta`.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, composed_event
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_INTEGER_ORDERS = [
    *map(float, range(2, 12)),
    14.0,
    16.0,
    20.0,
    24.0,
    32.0,
    48.0,
    63.0,
]  # some of dp_accounting's own
_PLD_STEPS = {"pld": 1e-4, "pld_quick": 1e-3}  # of privacy losses; the first is dp_accounting's own
# Above these, pld and prv take minutes and gigabytes.
MAX_EPSILON, MAX_STEPS = 200.0, 2 * 10**6
# Composing by Fourier transforms in float64 moved delta by up to 5e-15, and 2e-17 a step, where one
# Gaussian sum with a formula was taken for many (tests/accounting/test_accountant_bounds.py).
_ROUNDING, _ROUNDING_OF_A_STEP = 1e-13, 1e-16

Releases = Mapping[tuple[PoissonSampling, float], int]  # steps by sampling and noise multiplier


def compute_epsilon(ledgers: Iterable[Ledger], delta: float, accountant: str = "rdp") -> float:
    """Epsilon at delta of all the ledgers' releases together (inf if one is not private)."""
    releases: Counter[tuple[PoissonSampling, float]] = Counter()
    for ledger in ledgers:
        for nu, count in ledger.releases():
            releases[ledger.sampling, nu] += count
    return compute_epsilon_of_releases(releases, delta, accountant)


def compute_epsilon_of_releases(releases: Releases, delta: float, accountant: str = "rdp") -> float:
    """Epsilon at delta of so many steps of each sampling and noise multiplier.

    OsoError for an accountant that is not known, and where prv does not resolve delta or would take
    minutes.
    """
    if not releases:
        return 0.0
    if any(nu == 0 for _, nu in releases):
        return math.inf
    check_delta(delta)
    if accountant not in ("rdp", "pld", "prv"):
        raise OsoError(f"accountant {accountant!r}: not known; allowed are rdp, pld, prv")
    rdp = _rdp_epsilon(releases, delta)
    if accountant == "rdp":
        return rdp
    if accountant == "pld":
        return min(rdp, _pld_epsilon(releases, delta)) if rdp <= MAX_EPSILON else rdp
    check_prv(delta, sum(releases.values()), rdp)
    return min(rdp, max(_prv_epsilon(releases, delta), _pld_epsilon(releases, delta)))


def compute_epsilon_of_event(
    sampling: PoissonSampling, event: DpEvent, delta: float, accountant: str
) -> float:
    """Epsilon at delta of an event whose batches were drawn by `sampling`, by RDP or PLD alone."""
    check_delta(delta)
    with suppress_rdp_warnings():
        return float(make_accountant(accountant, sampling).compose(event).get_epsilon(delta))


def make_accountant(
    name: str, sampling: PoissonSampling, orders: Sequence[float] | None = None
) -> PrivacyAccountant:
    """dp_accounting's, rdp or pld, for the neighbouring relation of the sampling scheme.

    orders: those that rdp looks at (None: all of its own); fewer give an upper bound on epsilon.
    rdp_quick: RDP at some whole orders, in a twentieth of its time. pld_quick: PLD in steps ten
    times as coarse, in about a tenth of its time.
    """
    if name in ("rdp", "rdp_quick"):
        from oso_dp.privacy.dp_events import RdpAccountant

        orders = _INTEGER_ORDERS if name == "rdp_quick" else orders
        return RdpAccountant(orders, neighboring_relation=sampling.relation)
    if name in _PLD_STEPS:
        from dp_accounting.pld import PLDAccountant

        return PLDAccountant(sampling.relation, value_discretization_interval=_PLD_STEPS[name])
    raise OsoError(f"accountant {name!r}: not known; allowed are rdp, pld")


def nearby_orders(best: float) -> list[float]:
    """Of rdp's orders those near the `best` one of rdp_quick's, up to its neighbours on each side.

    Epsilon nearly always falls and then rises with the order; rdp's best is then one of them.
    """
    least = max((order for order in _INTEGER_ORDERS[:-1] if order < best), default=0.0)
    most = min((order for order in _INTEGER_ORDERS[:-1] if order > best), default=math.inf)
    return [order for order in _rdp_orders() if least <= order <= most]


def spread_orders() -> list[float]:
    """Of rdp's orders some over their whole range, all of which take little time."""
    return [*_INTEGER_ORDERS, *(order for order in _rdp_orders() if order > _INTEGER_ORDERS[-1])]


def _rdp_orders() -> list[float]:
    from oso_dp.privacy.dp_events import RdpAccountant

    return [float(order) for order in RdpAccountant().orders]


def check_delta(delta: float) -> None:
    """OsoError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise OsoError(f"delta {delta:g}: must be above 0 and below 1")


def smallest_delta(steps: int) -> float:
    """The smallest delta at which pld and prv tell epsilon of so many steps from rounding."""
    return 100 * _rounding(steps)


def round_delta(delta: float, steps: int) -> float:
    """The delta at which PLD is to be asked: rounding could make delta look smaller than it is.

    Where rounding is below a hundred-thousandth of delta, PLD's own discretization is coarser.
    """
    rounding = _rounding(steps)
    return delta - rounding if rounding > 1e-5 * delta else delta


def _rounding(steps: int) -> float:
    return max(_ROUNDING, _ROUNDING_OF_A_STEP * steps)


def check_prv(delta: float, steps: int, rdp: float | None = None, name: str = "delta") -> None:
    """OsoError where prv does not resolve delta after so many steps, or takes minutes.

    rdp: epsilon of these steps by that accountant, where it is known. name: the argument's.
    """
    costs = "" if rdp is None else f", its epsilon is {format_spent_epsilon(rdp)}"
    least = smallest_delta(steps)
    if delta < least:
        raise OsoError(
            f"{name} {delta!r}: must be at least {least:.4g} for accountant prv after {steps} "
            f"steps; accountant rdp takes any{costs}"
        )
    if steps > MAX_STEPS or (rdp is not None and rdp > MAX_EPSILON):
        raise OsoError(
            f"accountant prv: takes minutes and gigabytes above epsilon {MAX_EPSILON:g} or "
            f"{MAX_STEPS:,} steps, and there are {steps:,}; accountant rdp does not{costs}"
        )


def _rdp_epsilon(releases: Releases, delta: float) -> float:
    from oso_dp.privacy.dp_events import compute_epsilon

    orders = _rdp_orders()
    spent = sum(n * _step_rdp(sampling, nu) for (sampling, nu), n in releases.items())
    with suppress_rdp_warnings():
        return float(compute_epsilon(orders, spent, delta)[0])


@cache  # a study's grids share few noise multipliers, and composing adds up
def _step_rdp(sampling: PoissonSampling, noise_multiplier: float) -> np.ndarray:
    """The Rényi divergences of one step, by the accountant's orders."""
    from oso_dp.privacy.dp_events import RdpAccountant

    made = RdpAccountant(neighboring_relation=sampling.relation)
    with suppress_rdp_warnings():
        return made.compose(composed_event({(sampling, noise_multiplier): 1})).rdp


def _pld_epsilon(releases: Releases, delta: float) -> float:
    """By PLD alone; infinite where it does not resolve delta."""
    steps = sum(releases.values())
    if delta < smallest_delta(steps):
        return math.inf
    spent = (_step_pld(sampling, nu).self_compose(n) for (sampling, nu), n in releases.items())
    together = reduce(lambda one, more: one.compose(more), spent)
    return float(together.get_epsilon_for_delta(round_delta(delta, steps)))


@lru_cache(8)  # the most of the time; megabytes where noise is little
def _step_pld(sampling: PoissonSampling, noise_multiplier: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        value_discretization_interval=_PLD_STEPS["pld"],
        sampling_prob=sampling.rate,
        neighboring_relation=sampling.relation,
    )


def _prv_epsilon(releases: Releases, delta: float) -> float:
    """By PRV alone; infinite where its discretization fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import, about itself
        from opacus.accountants import PRVAccountant

        made = PRVAccountant()  # for Poisson sampling and add-or-remove-one, as PoissonSampling is
        made.history = [(nu, sampling.rate, n) for (sampling, nu), n in releases.items()]
        try:
            return float(made.get_epsilon(delta))
        except (RuntimeError, ValueError):
            return math.inf


@contextmanager
def suppress_rdp_warnings() -> Iterator[None]:
    """Silence the notes on orders that do not converge: leaving them out is on the safe side."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
