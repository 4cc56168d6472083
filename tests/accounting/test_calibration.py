"""The least noise that meets a budget, whatever the accountant answers and wherever one begins."""

import math

import pytest

from oso_dp.accounting import search as search_module
from oso_dp.accounting.calibration import LARGEST_NOISE, SMALLEST_NOISE, calibrate_noise_multiplier
from oso_dp.accounting.search import Search
from oso_dp.privacy.sampling import PoissonSampling

COSTS = {
    "power": lambda nu: 5 / nu**1.3,
    "infinite where noise is small": lambda nu: 2 / (nu - 0.7) if nu > 0.7 else math.inf,
    "steps, as of what rounds": lambda nu: math.ceil(500 / nu) / 100 + 0.003,
    "a cliff": lambda nu: 100.0 if nu < 3 else 0.5,
}
NEAR = [None, 0.01, SMALLEST_NOISE, 0.9, 3.0, 3.0001, 70.0, LARGEST_NOISE, 1e6]


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("tolerance", [1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize("cost", COSTS)
def test_it_is_enough_and_hardly_less_is_not(cost, tolerance, near) -> None:
    for epsilon in (0.51, 2.0, 8.0):
        nu = calibrate_noise_multiplier(COSTS[cost], epsilon, tolerance, near)
        assert COSTS[cost](nu) <= epsilon
        assert COSTS[cost](nu * (1 - 2.1 * tolerance)) > epsilon


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
def test_there_is_none_where_all_noise_is_enough_or_too_little(epsilon, near) -> None:
    assert calibrate_noise_multiplier(lambda nu: 5 / nu, epsilon, 1e-9, near) is None


@pytest.mark.parametrize("nu", [0.0501, 0.06, 1.0, 9900.0])
def test_up_to_the_ends_of_the_range(nu: float) -> None:
    for near in NEAR:
        assert calibrate_noise_multiplier(lambda at: 5 / at, 5 / nu, 1e-9, near) == pytest.approx(
            nu, rel=2e-9
        )


def test_no_noise_is_asked_about_twice_and_few_where_it_begins_near() -> None:
    asked: list[float] = []

    def cost(nu: float) -> float:
        asked.append(nu)
        return 5 / nu**1.3

    found = calibrate_noise_multiplier(cost, 3.0, 1e-5)
    assert len(asked) == len(set(asked)) > 8
    asked.clear()
    calibrate_noise_multiplier(cost, 3.0, 1e-5, found * 1.0001)
    assert len(asked) == len(set(asked)) <= 6


def test_the_dear_accountant_is_asked_seldom(monkeypatch) -> None:
    """PLD in fine steps takes most of a search's time."""
    asked: list[str] = []
    fresh = search_module.make_accountant

    def noted(name: str, *how):
        asked.append(name)
        return fresh(name, *how)

    monkeypatch.setattr(search_module, "make_accountant", noted)
    found = Search(PoissonSampling(512 / 60_000), 1172, 9)
    nu = found.noise_multiplier(3.0, 1e-5, "pld")
    assert 1 <= asked.count("pld") <= 8
    assert found.epsilon(nu, 1e-5, "pld") <= 3.0 < found.epsilon(nu * (1 - 3e-5), 1e-5, "pld")
