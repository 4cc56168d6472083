"""Three accountants over the same ledgers."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from opacus.accountants import PRVAccountant

from oso_dp.accounting.accountants import compute_epsilon, make_accountant
from oso_dp.accounting.advanced_composition import compute_gaussian_epsilon
from oso_dp.accounting.search import Search
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.sampling import PoissonSampling

DELTA = 1e-5
MNIST = PoissonSampling(512 / 60_000)
STEPS = 1172  # 10 epochs


def online_grid() -> list[Ledger]:
    """What the nine runs of Online's grid write at epsilon = 3: two sums a step."""
    nu = Search(MNIST, STEPS, 9).noise_multiplier(3.0, DELTA)
    nu_q = 7.124 * nu
    step = (SumQuery("g", gradient_noise_multiplier(nu, nu_q)), SumQuery("q", nu_q))
    return [Ledger(MNIST, [(step, STEPS)])] * 9


def test_compute_epsilon_grid_spends_budget() -> None:
    spent = compute_epsilon(online_grid(), DELTA)
    assert spent <= 3.0 + 1e-9
    assert spent == pytest.approx(3.0, rel=1e-4)


def test_compute_epsilon_accountants_agree() -> None:
    """Two libraries' tight bounds within 2 % of each other, both below RDP's looser one."""
    rdp, pld, prv = (compute_epsilon(online_grid(), DELTA, name) for name in ("rdp", "pld", "prv"))
    assert pld == pytest.approx(prv, rel=0.02)
    assert 0.85 * rdp < pld < rdp
    assert 0.85 * rdp < prv < rdp


def test_search_noise_multiplier_matches_opacus() -> None:
    from opacus.accountants.analysis import rdp as opacus

    nu = Search(MNIST, STEPS, 9).noise_multiplier(3.0, DELTA)
    orders = [1 + x / 10 for x in range(1, 200)] + list(range(21, 100))
    spent = opacus.compute_rdp(q=MNIST.rate, noise_multiplier=nu, steps=STEPS * 9, orders=orders)
    epsilon, _ = opacus.get_privacy_spent(orders=orders, rdp=spent, delta=DELTA)
    assert epsilon == pytest.approx(3.0, rel=0.005)


def test_compute_epsilon_ledgers_add_up() -> None:
    step = (SumQuery("g", 1.0),)
    whole, half = Ledger(MNIST, [(step, 100)]), Ledger(MNIST, [(step, 50)])
    assert compute_epsilon([whole, half], DELTA) == compute_epsilon(
        [Ledger(MNIST, [(step, 150)])], DELTA
    )
    assert compute_epsilon([], DELTA) == 0.0


@pytest.mark.parametrize("delta", [DELTA, 1e-8, 1e-3])
@pytest.mark.filterwarnings("ignore:divide by zero")  # in Opacus
def test_compute_epsilon_uses_given_delta(delta: float) -> None:
    """The cost of one Gaussian sum follows its formula; at a delta 5 % larger it is 0.03 less."""
    ledger = Ledger(PoissonSampling(1.0), [((SumQuery("g", 0.3),), 1)])
    (exact,) = compute_gaussian_epsilon(0.3, np.array([delta]))
    pld, prv = (compute_epsilon([ledger], delta, name) for name in ("pld", "prv"))
    assert exact - 1e-3 < pld < exact + 0.02
    opacus = PRVAccountant()
    opacus.history = [(0.3, 1.0, 1)]
    assert pld < prv == opacus.get_epsilon(delta)


@pytest.mark.parametrize("accountant", ["rdp", "pld", "prv"])
def test_compute_epsilon_noiseless_sum_becomes_infinite(accountant: str) -> None:
    ledgers = [*online_grid(), Ledger(MNIST, [((SumQuery("plain_gradient", 0.0),), 1)])]
    assert compute_epsilon(ledgers, DELTA, accountant) == math.inf


@pytest.mark.parametrize("accountant", ["rdp", "pld", "prv"])
@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1e-5, math.nan])
def test_compute_epsilon_invalid_delta_rejected(accountant: str, delta: float) -> None:
    with pytest.raises(OsoError, match=r"delta: .*; must be > 0 and < 1"):
        compute_epsilon([Ledger(MNIST, [((SumQuery("g", 1.0),), 1)])], delta, accountant)


def test_compute_epsilon_unknown_accountant_rejected() -> None:
    with pytest.raises(OsoError, match="accountant: 'gdp'"):
        compute_epsilon([Ledger(MNIST, [((SumQuery("g", 1.0),), 1)])], DELTA, "gdp")


@pytest.mark.parametrize("name", ["rdp", "rdp_quick", "pld"])
def test_make_accountant_follows_sampling_relation(name, monkeypatch) -> None:
    one = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))

    def epsilon() -> float | None:
        try:
            spent = make_accountant(name, PoissonSampling(0.01)).compose(one, 100)
        except UnsupportedEventError:
            return None
        return spent.get_epsilon(DELTA)

    right = epsilon()
    assert right is not None
    monkeypatch.setattr(PoissonSampling, "relation", NeighboringRelation.REPLACE_ONE)
    assert epsilon() != right


@pytest.mark.parametrize("turned", [False, True])
def test_compute_epsilon_mixed_rates_match_composition(turned: bool) -> None:
    rates = {0.004: 500, 0.02: 100, 0.05: 40}
    ledgers = [
        Ledger(PoissonSampling(rate), [((SumQuery("g", 1.1),), count)])
        for rate, count in rates.items()
    ][:: -1 if turned else 1]
    made = RdpAccountant()
    for rate, count in rates.items():
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1.1))
        made.compose(dp_event.SelfComposedDpEvent(step, count))
    rdp, prv = (compute_epsilon(ledgers, DELTA, name) for name in ("rdp", "prv"))
    assert rdp == pytest.approx(made.get_epsilon(DELTA), rel=1e-9)
    assert 0.85 * rdp < prv < rdp


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("noise", [(30.0, 20.0), (25.0, 25.0)])
def test_compute_epsilon_pld_mixed_rates_match(noise, turned: bool) -> None:
    kinds = [(1.0, noise[0], 5), (0.5, noise[1], 3)][:: -1 if turned else 1]
    made, ledgers = PLDAccountant(), []
    for rate, nu, count in kinds:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(nu))
        made.compose(dp_event.SelfComposedDpEvent(step, count))
        ledgers.append(Ledger(PoissonSampling(rate), [((SumQuery("g", nu),), count)]))
    assert compute_epsilon(ledgers, DELTA, "pld") == pytest.approx(
        made.get_epsilon(DELTA), rel=1e-6
    )
