"""Epsilon of what ledgers say was released, by three accountants.

`rdp`: Rényi differential privacy (dp_accounting), the study's own and the paper's. `pld`: privacy
loss distributions (dp_accounting), tighter. `prv`: privacy random variables (Opacus), another
library's way to the same number. An accountant is made for the neighbouring relation of the
ledgers' sampling scheme; it cannot be chosen apart from it.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, composed_event
from oso_dp.privacy.sampling import PoissonSampling

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

_WHOLE_ORDERS = [
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


def epsilon_of(ledgers: Iterable[Ledger], delta: float, accountant: str = "rdp") -> float:
    """Epsilon at delta of all the ledgers' releases together (inf if one is not private)."""
    releases: Counter[tuple[PoissonSampling, float]] = Counter()
    for ledger in ledgers:
        for nu, count in ledger.releases():
            releases[ledger.sampling, nu] += count
    if not releases:
        return 0.0
    if any(nu == 0 for _, nu in releases):
        return math.inf
    if accountant == "prv":
        return _prv_epsilon(releases, delta)
    if accountant == "rdp":
        return _rdp_epsilon(releases, delta)
    sampling = next(iter(releases))[0]
    return epsilon_of_event(sampling, composed_event(releases), delta, accountant)


def epsilon_of_event(
    sampling: PoissonSampling, event: DpEvent, delta: float, accountant: str
) -> float:
    """Epsilon at delta of an event whose batches were drawn by `sampling`, by RDP or PLD."""
    check_delta(delta)
    with quiet():
        return float(fresh_accountant(accountant, sampling).compose(event).get_epsilon(delta))


def fresh_accountant(
    name: str, sampling: PoissonSampling, orders: Sequence[float] | None = None
) -> PrivacyAccountant:
    """dp_accounting's, rdp or pld, for the neighbouring relation of the sampling scheme.

    orders: those that rdp looks at (None: all of its own); fewer give an upper bound on epsilon.
    rdp_quick: RDP at some whole orders, in a twentieth of its time. pld_quick: PLD in steps ten
    times as coarse, in about a tenth of its time.
    """
    if name in ("rdp", "rdp_quick"):
        from oso_dp.privacy.dp_events import RdpAccountant

        orders = _WHOLE_ORDERS if name == "rdp_quick" else orders
        return RdpAccountant(orders, neighboring_relation=sampling.relation)
    if name in _PLD_STEPS:
        from dp_accounting.pld import PLDAccountant

        return PLDAccountant(sampling.relation, value_discretization_interval=_PLD_STEPS[name])
    raise OsoError(f"accountant {name!r}: not known; allowed are rdp, pld")


def orders_around(best: float) -> list[float]:
    """Of rdp's orders those near the `best` one of rdp_quick's, up to its neighbours on each side.

    Epsilon nearly always falls and then rises with the order; rdp's best is then one of them.
    """
    least = max((order for order in _WHOLE_ORDERS[:-1] if order < best), default=0.0)
    most = min((order for order in _WHOLE_ORDERS[:-1] if order > best), default=math.inf)
    return [order for order in _rdp_orders() if least <= order <= most]


def orders_apart() -> list[float]:
    """Of rdp's orders some over their whole range, all of which take little time."""
    return [*_WHOLE_ORDERS, *(order for order in _rdp_orders() if order > _WHOLE_ORDERS[-1])]


def _rdp_orders() -> list[float]:
    from oso_dp.privacy.dp_events import RdpAccountant

    return [float(order) for order in RdpAccountant().orders]


def check_delta(delta: float) -> None:
    """OsoError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise OsoError(f"delta {delta:g}: must be above 0 and below 1")


def _rdp_epsilon(releases: Counter[tuple[PoissonSampling, float]], delta: float) -> float:
    from oso_dp.privacy.dp_events import compute_epsilon

    check_delta(delta)
    orders = _rdp_orders()
    spent = sum(n * _step_rdp(sampling, nu) for (sampling, nu), n in releases.items())
    with quiet():
        return float(compute_epsilon(orders, spent, delta)[0])


@cache  # a study's grids share few noise multipliers, and composing adds up
def _step_rdp(sampling: PoissonSampling, noise_multiplier: float) -> np.ndarray:
    """The Rényi divergences of one step, by the accountant's orders."""
    from oso_dp.privacy.dp_events import RdpAccountant

    made = RdpAccountant(neighboring_relation=sampling.relation)
    with quiet():
        return made.compose(composed_event({(sampling, noise_multiplier): 1})).rdp


def _prv_epsilon(releases: Counter[tuple[PoissonSampling, float]], delta: float) -> float:
    check_delta(delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import, about itself
        from opacus.accountants import PRVAccountant

        made = PRVAccountant()  # for Poisson sampling and add-or-remove-one, as PoissonSampling is
        made.history = [(nu, sampling.rate, n) for (sampling, nu), n in releases.items()]
        return float(made.get_epsilon(delta))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the notes on orders that do not converge: leaving them out is on the safe side."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
