"""The linear scaling rule's price: trials and the final run keep one budget, and use it."""

import re

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from tests.searches import scaled_cost

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.linear_scaling import (
    LinearScalingSearch,
    final_noise_multiplier,
    find_fraction_error,
)
from oso_dp.accounting.search_accounting.random_stopping import RandomStoppingSearch
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling

RATE, STEPS, DELTA = 0.02, 200, 1e-5
CASES = [
    # epsilon, N, shares
    (0.5, 5, (0.1, 0.2)),
    (3.0, 1, (0.1, 0.2)),
    (3.0, 9, (0.1, 0.2)),
    (3.0, 81, (0.05, 0.1, 0.15)),
    (3.0, 9, (0.45, 0.5)),
    (9.0, 25, (0.3, 0.6)),
    (9.0, 5, (0.01, 0.02, 0.03, 0.04)),
    (30.0, 9, (0.1, 0.89)),
]


def search(runs, shares=(0.1, 0.2), steps=STEPS):
    return LinearScalingSearch(PoissonSampling(RATE), steps, runs, shares)


def composed(accountant, noise, runs, steps=STEPS):
    """The whole search's epsilon by dp_accounting, with nothing of ours."""
    counts = [steps * runs] * (len(noise) - 1) + [steps]
    events = [PoissonSampledDpEvent(RATE, GaussianDpEvent(nu)) for nu in noise]
    whole = map(SelfComposedDpEvent, events, counts)
    return accountant().compose(ComposedDpEvent(list(whole))).get_epsilon(DELTA)


@pytest.mark.parametrize(("epsilon", "runs", "shares"), CASES)
def test_linear_scaling_search_spends_budget(epsilon, runs, shares) -> None:
    one = search(runs, shares)
    noise = one.noise_multipliers(epsilon, DELTA)
    assert len(noise) == len(one.stages) == len(shares) + 1
    assert list(noise) == sorted(noise, reverse=True)
    spent = composed(RdpAccountant, noise, runs)
    assert epsilon * (1 - 1e-6) <= spent <= epsilon
    assert scaled_cost(one, noise, DELTA) == pytest.approx(spent, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "runs", "shares", "delta"),
    [*((*case, DELTA) for case in CASES), (*CASES[2], 1e-9), (*CASES[2], 1e-3)],
)
def test_linear_scaling_search_trial_costs_share(epsilon, runs, shares, delta) -> None:
    noise = search(runs, shares).noise_multipliers(epsilon, delta)
    for share, nu in zip(shares, noise, strict=False):
        alone = RdpAccountant()
        step = PoissonSampledDpEvent(RATE, GaussianDpEvent(nu))
        alone.compose(SelfComposedDpEvent(step, STEPS * runs))
        assert share * epsilon * (1 - 1e-6) <= alone.get_epsilon(delta) <= share * epsilon


def test_linear_scaling_search_equal_noise_summed() -> None:
    same = scaled_cost(search(9), (1.0, 1.0, 1.0), DELTA)
    assert same == Search(PoissonSampling(RATE), STEPS, 19).epsilon(1.0, DELTA)


def test_linear_scaling_search_pld_lowers_noise() -> None:
    one = search(9, steps=100)
    noise = one.noise_multipliers(1.0, DELTA, "pld")
    assert all(nu < more for nu, more in zip(noise, one.noise_multipliers(1.0, DELTA), strict=True))
    assert 1 - 1e-3 <= composed(PLDAccountant, noise, 9, 100) <= 1
    assert scaled_cost(one, noise, DELTA, "pld") == pytest.approx(1, rel=1e-3)


def test_final_noise_multiplier_spent_budget_rejected() -> None:
    with pytest.raises(
        OsoError, match=r"trial_fractions: 0\.1, 0\.2; the trials cost epsilon .* of 3"
    ):
        final_noise_multiplier(search(9), (1.0, 1.0), 3.0, DELTA)
    with pytest.raises(OsoError, match="no noise multiplier from"):
        search(9, steps=10**6).noise_multipliers(0.01, DELTA)
    with pytest.raises(OsoError, match=r"epsilon: 1e\+09; must be at most"):
        final_noise_multiplier(search(9), (1.0, 1.0), 1e9, DELTA)  # which is not the trials' fault


SHARES = {
    (): "two numbers or more",
    (0.1,): "two numbers or more",
    (0.2, 0.1): "must increase",
    (0.1, 0.1): "must increase",
    (0.0, 0.1): "> 0 and < 1",
    (-0.1, 0.1): "> 0 and < 1",
    (0.1, 1.0): "> 0 and < 1",
    (0.1, float("nan")): "> 0 and < 1",
    (0.1, "0.2"): "> 0 and < 1",
    (0.4, 0.6): "their sum must be < 1",
    (0.2, 0.3, 0.5): "their sum must be < 1",
}


@pytest.mark.parametrize("shares", SHARES)
def test_linear_scaling_search_invalid_fractions_rejected(shares) -> None:
    assert SHARES[shares] in find_fraction_error(shares)
    with pytest.raises(OsoError, match=f"trial_fractions: .*; .*{SHARES[shares]}"):
        search(9, shares)
    assert find_fraction_error("0.1") is not None
    assert find_fraction_error(None) is not None


def test_random_stopping_search_prior_releases_rejected() -> None:
    with pytest.raises(OsoError, match="prior_releases: not supported by"):
        RandomStoppingSearch(PoissonSampling(RATE), STEPS, 9, prior_releases=((1.0, 9),))


@pytest.mark.parametrize("noise", [(1.0, 1.0), (1.0, 2.0), (0.8, 3.0), (2.0, 1.0, 3.0)])
def test_final_noise_multiplier_error_sums_trials(noise) -> None:
    with pytest.raises(OsoError, match="the trials cost epsilon") as refused:
        final_noise_multiplier(search(9, (0.1, 0.2, 0.3)[: len(noise)]), noise, 2.0, DELTA)
    said = float(re.search(r"cost epsilon (\S+) of 2", str(refused.value))[1])
    made = RdpAccountant()
    for nu in noise:
        step = PoissonSampledDpEvent(RATE, GaussianDpEvent(nu))
        made.compose(SelfComposedDpEvent(step, STEPS * 9))
    assert said == pytest.approx(made.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_linear_scaling_search_epsilon_uses_accountant(monkeypatch, accountant) -> None:
    price = {"rdp": 8.0, "pld": 4.0}

    def earlier(one: Search, by: str) -> float:
        return sum(price[by] / nu for nu, _ in one.prior_releases)

    def cost(one: Search, nu: float, _: float, by: str = "rdp") -> float:
        return earlier(one, by) + one.runs * price[by] / nu

    def noise(one: Search, epsilon: float, _: float, by: str = "rdp") -> float:
        return one.runs * price[by] / (epsilon - earlier(one, by))

    monkeypatch.setattr(Search, "epsilon", cost)
    monkeypatch.setattr(Search, "noise_multiplier", noise)
    one = search(5, steps=STEPS + 1)  # which no other test asks about
    nu = one.noise_multiplier(9.0, DELTA, accountant)
    assert one.epsilon(nu, DELTA, accountant) == pytest.approx(9.0, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "runs", "shares"), CASES)
def test_linear_scaling_search_epsilon_inverts_noise(epsilon, runs, shares) -> None:
    one = LinearScalingSearch(
        PoissonSampling(1.0), 5, runs, shares
    )  # all in each batch: soon priced
    nu = one.noise_multiplier(epsilon, DELTA)
    assert one.epsilon(nu, DELTA) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("accountant", "expected"), [("rdp", 11.0), ("pld", 5.5)])
def test_final_noise_multiplier_error_uses_accountant(monkeypatch, accountant, expected) -> None:
    price = {"rdp": 8.0, "pld": 4.0}

    def cost(one: Search, nu: float, _: float, by: str = "rdp") -> float:
        return one.runs * price[by] / nu + sum(
            price[by] / earlier for earlier, _ in one.prior_releases
        )

    def noise(one: Search, *_: object) -> float:
        if one.prior_releases:
            raise OsoError("nothing is left")
        return 1.0

    monkeypatch.setattr(Search, "epsilon", cost)
    monkeypatch.setattr(Search, "noise_multiplier", noise)
    said = rf"the trials cost epsilon {expected:g} of 2,"
    with pytest.raises(OsoError, match=said):
        final_noise_multiplier(search(5), (8.0, 4.0), 2.0, DELTA, accountant)


def test_linear_scaling_search_many_steps_priced() -> None:
    """MNIST with 81 points has 94,932 steps per trial; rate 1 makes the computation fast."""
    one = LinearScalingSearch(PoissonSampling(1.0), 1172, 81, (0.05, 0.1, 0.15))
    noise = one.noise_multipliers(3.0, DELTA)
    counts = [1172 * 81] * 3 + [1172]
    events = list(map(SelfComposedDpEvent, map(GaussianDpEvent, noise), counts))
    spent = RdpAccountant().compose(ComposedDpEvent(events)).get_epsilon(DELTA)
    assert 3.0 * (1 - 1e-6) <= spent <= 3.0
