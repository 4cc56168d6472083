"""What a search costs, against independent values, and the least noise that meets a budget."""

import json
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.searches import make_search

from oso_dp.accounting import search as search_module
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.advanced_composition import compute_gaussian_epsilon
from oso_dp.accounting.search import (
    LARGEST_NOISE,
    SMALLEST_NOISE,
    Search,
    calibrate_noise_multiplier,
)
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

DELTA = 1e-5
RUNS = (1, 5, 7, 9, 25, 35, 45, 49, 81)
# (examples, epsilon) -> noise multiplier for each number of runs, from an independent accountant.
COMPOSITION = {
    (60_000, 3): (0.837, 1.210, 1.362, 1.498, 2.308, 2.692, 3.028, 3.151, 4.008),
    (60_000, 9): (0.580, 0.724, 0.772, 0.815, 1.080, 1.211, 1.327, 1.371, 1.677),
    (120_000, 3): (0.742, 0.964, 1.063, 1.153, 1.698, 1.961, 2.191, 2.277, 2.871),
}
# (epsilon, mean runs) -> composition, geometric, logarithmic, Poisson; on MNIST.
SELECTION = {
    (1, 9): (3.634, 2.598, 2.198, 2.625),
    (1, 81): (10.667, 3.220, 2.574, 7.242),
    (3, 9): (1.494, 1.125, 1.034, 1.138),
    (3, 81): (3.994, 1.306, 1.147, 2.761),
    (9, 9): (0.814, 0.684, 0.659, 0.692),
    (9, 81): (1.672, 0.754, 0.708, 1.244),
}


def search(runs: int, search_accounting: str = "composition", shape: float = 1.0, n: int = 60_000):
    steps = math.ceil(10 * n / 512)
    return make_search(PoissonSampling(512 / n), steps, runs, search_accounting, shape)


def least(found: Search, epsilon: float, expected: float, rel: float) -> bool:
    """Whether the least noise that meets the budget is this one: it is between these two."""
    enough, too_little = (found.epsilon(expected * by, DELTA) for by in (1 + rel, 1 - rel))
    return enough <= epsilon < too_little


@pytest.mark.parametrize("case", COMPOSITION)
def test_search_composition_matches_reference_values(case) -> None:
    examples, epsilon = case
    for runs, expected in zip(RUNS, COMPOSITION[case], strict=True):
        assert least(search(runs, n=examples), epsilon, expected, rel=0.005), runs
    nu = search(runs, n=examples).noise_multiplier(epsilon, DELTA)
    assert nu == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("case", SELECTION)
def test_search_accountings_match_reference_values(case) -> None:
    epsilon, runs = case
    composed, *stopped = SELECTION[case]
    assert least(search(runs), epsilon, composed, rel=0.001)
    for name, expected in zip(("geometric", "logarithmic", "poisson"), stopped, strict=True):
        found = search(runs, "random_stopping", STOPPING_ETA[name])
        assert least(found, epsilon, expected, rel=0.0015), name
    assert found.noise_multiplier(epsilon, DELTA) == pytest.approx(expected, rel=0.0015)


def test_search_pld_noise_found_near_rdp(monkeypatch) -> None:
    """The PLD search starts near the RDP noise; far below it, PLD takes hours and gigabytes."""
    asked, event = [], Search._event
    monkeypatch.setattr(Search, "_event", lambda self, nu: (asked.append(nu), event(self, nu))[1])
    rdp = search(81).noise_multiplier(3.0, DELTA)
    asked.clear()
    monkeypatch.setattr(Search, "_by_rdp", lambda *_: rdp)
    pld = search(81).noise_multiplier(3.0, DELTA, "pld")
    assert 0.9 * rdp < pld < 0.99 * rdp
    assert 0.8 * rdp <= min(asked) < pld < max(asked) < 1.1 * rdp
    assert search(81).epsilon(pld, DELTA, "pld") == pytest.approx(3.0, rel=1e-3)


# Not shrunk: a smaller failing search would take minutes to find, and say no more.
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    epsilon=st.floats(0.2, 50),
    runs=st.integers(1, 200),
    rate=st.sampled_from([0.001, 0.01, 0.3, 1.0]),
    steps=st.integers(1, 3000),
)
# Where much noise covers the budget whole, and more than one noise has this epsilon.
@example(epsilon=0.1, runs=1, rate=0.001, steps=1)
@example(epsilon=0.1, runs=1, rate=0.01, steps=50)
# The best Rényi order is above 63, and the least of all.
@example(epsilon=0.1, runs=9, rate=0.001, steps=1200)
@example(epsilon=50.0, runs=81, rate=0.3, steps=2350)
def test_search_noise_multiplier_minimal_for_budget(epsilon, runs, rate, steps) -> None:
    found = Search(PoissonSampling(rate), steps, runs)
    nu = found.noise_multiplier(epsilon, DELTA)
    assert found.epsilon(nu, DELTA) <= epsilon
    assert found.epsilon(nu * (1 - 1e-5), DELTA) > epsilon


@pytest.mark.parametrize(("steps", "runs"), [(1, 2), (1172, 81), (10**6, 10**6)])
@pytest.mark.parametrize("search_accounting", ["composition", "random_stopping"])
def test_search_noise_multiplier_any_size_found(steps, runs, search_accounting) -> None:
    found = make_search(PoissonSampling(1e-3), steps, runs, search_accounting)
    nu = found.noise_multiplier(8.0, DELTA)
    assert found.epsilon(nu, DELTA) <= 8.0 < found.epsilon(nu * (1 - 1e-6), DELTA)


@pytest.mark.parametrize("runs", [1, 40, 10**6])
def test_search_many_steps_match_dp_accounting(runs: int) -> None:
    """Rényi divergences add up, so many steps cost a multiple of one step's divergence."""
    one = dp_event.PoissonSampledDpEvent(0.001, dp_event.GaussianDpEvent(500.0))
    many = RdpAccountant().compose(dp_event.SelfComposedDpEvent(one, 10**6 * runs))
    found = Search(PoissonSampling(0.001), 10**6, runs).epsilon(500.0, DELTA)
    assert found == pytest.approx(many.get_epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (1e-9, "no noise multiplier from 0.05 to 10000 meets it"),
        (1e9, r"must be at most 1.525e\+05, the cost of the smallest noise multiplier, 0.05,"),
    ],
)
def test_search_unreachable_budget_rejected(epsilon: float, said: str) -> None:
    with pytest.raises(OsoError, match=rf"^epsilon: [\de+-]+; {said} at delta 1e-05 for 9 x 100"):
        Search(PoissonSampling(0.01), 100, 9).noise_multiplier(epsilon, DELTA)


@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_search_pld_noise_matches_formula(delta: float) -> None:
    """At rate 1, all steps equal one Gaussian sum with less noise, which has a formula."""
    nu = Search(PoissonSampling(1.0), 10, 2).noise_multiplier(1.0, delta, "pld")
    (exact,) = compute_gaussian_epsilon(nu / 20**0.5, np.array([delta]))
    assert exact == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("accountant", ["gdp", "prv"])
def test_search_unsupported_accountant_rejected(accountant: str) -> None:
    search = Search(PoissonSampling(0.1), 10, 2)
    for ask in (search.noise_multiplier, search.epsilon):
        with pytest.raises(OsoError, match=rf"accountant: '{accountant}'; must be one of"):
            ask(1.0, DELTA, accountant)


def test_search_pld_large_epsilon_rejected() -> None:
    found = Search(PoissonSampling(0.1), 1000, 81)
    for ask in (found.epsilon, found.noise_multiplier):
        with pytest.raises(OsoError, match=r"accountant: 'pld' at epsilon .* above 200"):
            ask(*((0.3,) if ask == found.epsilon else (1000.0,)), DELTA, "pld")


@pytest.mark.parametrize(
    ("steps", "runs", "before"),
    [
        (2_000_001, 1, ()),
        *((1000, 2001, ()), (3, 700_000, ())),
        (1, 1, ((1000.0, 2_000_000),)),
        (1000, 2, ((900.0, 1_000_000), (1000.0, 999_000))),
    ],
)
def test_search_pld_many_steps_rejected(steps, runs, before) -> None:
    found = Search(PoissonSampling(0.01), steps, runs, prior_releases=before)
    for ask in (found.epsilon, found.noise_multiplier):
        with pytest.raises(OsoError, match=r"accountant: 'pld' for .* above 2,000,000"):
            ask(1000.0 if ask == found.epsilon else 1.0, DELTA, "pld")


STOPPED = {"search_accounting": "random_stopping"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps: 0; must be >= 1"),
        ({"runs": 0}, "runs: 0; must be >= 1"),
        (
            {"search_accounting": "best"},
            "search_accounting: 'best'; must be one of composition, linear_sca",
        ),
        ({**STOPPED, "stopping_eta": -0.5}, "stopping_eta: -0.5; must be >= 0"),
        ({**STOPPED, "runs": 1}, "runs: 1; must be > 1"),
    ],
)
def test_search_invalid_arguments_rejected(values, message) -> None:
    base = {"steps": 10, "runs": 9, "search_accounting": "composition"}
    with pytest.raises(OsoError, match=message):
        make_search(PoissonSampling(0.01), **(base | values))


@pytest.mark.parametrize(
    ("steps", "runs", "shape"),
    [
        (3, 2, 0.0),
        (40, 9, 1.0),
        (1172, 81, 0.5),
        (10, 405, 1.0),
        (10, 10**6, 0.0),
        (20_000, 9, 1.0),
        (300_000, 4, 0.0),
    ],
)
def test_random_stopping_search_matches_dp_accounting(steps, runs, shape) -> None:
    one = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(0.9)), steps
    )
    spent = RdpAccountant().compose(dp_event.RepeatAndSelectDpEvent(one, runs, shape))
    priced = make_search(PoissonSampling(0.01), steps, runs, "random_stopping", shape)
    assert priced.epsilon(0.9, DELTA) == pytest.approx(spent.get_epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-2, 0.3])
def test_search_large_delta_finds_least_noise(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    event = Search._event
    monkeypatch.setattr(Search, "_event", lambda self, nu: (asked.append(nu), event(self, nu))[1])
    search = Search(PoissonSampling(0.01), 10, 2)
    assert search.epsilon(4.0, delta) == 0
    nu = search.noise_multiplier(0.5, delta)
    assert len(asked) < 40
    assert search.epsilon(nu, delta) <= 0.5 < search.epsilon(nu * (1 - 1e-6), delta)


def test_search_stored_plan_noise_reproduced(repo) -> None:
    cohorts = json.loads((repo / "results/plan.json").read_text())["cohorts"]
    private = {
        (c["sampling_rate"], c["steps"], c["runs"], c["epsilon"]): c
        for c in cohorts
        if c["epsilon"] is not None
    }
    for cohort in list(private.values())[::5]:
        sampling = PoissonSampling(cohort["sampling_rate"])
        found = make_search(sampling, cohort["steps"], cohort["runs"], cohort["search_accounting"])
        nu, budget = cohort["noise_multiplier"], cohort["epsilon"]
        assert round(nu, 5) == nu
        less, more = (found.epsilon(at, cohort["delta"]) for at in (nu, nu - 1e-5))
        assert less <= budget < more, cohort["name"]


@pytest.mark.parametrize("runs", [1, 2, 9])
@pytest.mark.parametrize("nu", [1.5, 2.0])
def test_search_prior_releases_added(runs: int, nu: float) -> None:
    sampling = PoissonSampling(0.02)
    sums = [(nu, 30 * runs), (2.0, 50), (1.0, 7)]
    ledgers = [Ledger(sampling, [((SumQuery("g", noise),), count)]) for noise, count in sums]
    found = Search(sampling, 30, runs, prior_releases=((2.0, 50), (1.0, 7))).epsilon(nu, 1e-5)
    assert found == pytest.approx(compute_epsilon(ledgers, 1e-5), rel=1e-9)


@pytest.mark.parametrize("side", ["below", "above"])
@pytest.mark.parametrize("away", [1, 2, 4])
def test_search_few_orders_find_least_noise(side, away, monkeypatch) -> None:
    found = Search(PoissonSampling(0.01), 50, 9)
    nu = found.noise_multiplier(2.0, DELTA)
    one = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(nu))
    spent = RdpAccountant().compose(dp_event.SelfComposedDpEvent(one, 450))
    orders = [float(order) for order in spent.orders]
    place = orders.index(float(spent.get_epsilon_and_optimal_order(DELTA)[1]))
    end = place - away if side == "below" else place + away
    few = orders[end - 2 : end + 1] if side == "below" else orders[end : end + 3]
    monkeypatch.setattr(search_module, "nearby_orders", lambda best: few)
    assert found.noise_multiplier(2.0, DELTA) == pytest.approx(nu, rel=1e-7)


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
def test_calibrate_noise_multiplier_finds_least(cost, tolerance, near) -> None:
    for epsilon in (0.51, 2.0, 8.0):
        nu = calibrate_noise_multiplier(COSTS[cost], epsilon, tolerance, near)
        assert COSTS[cost](nu) <= epsilon
        assert COSTS[cost](nu * (1 - 2.1 * tolerance)) > epsilon


@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
def test_calibrate_noise_multiplier_unreachable_returns_none(epsilon, near) -> None:
    assert calibrate_noise_multiplier(lambda nu: 5 / nu, epsilon, 1e-9, near) is None


@pytest.mark.parametrize("nu", [0.0501, 0.06, 1.0, 9900.0])
def test_calibrate_noise_multiplier_reaches_range_ends(nu: float) -> None:
    for near in NEAR:
        assert calibrate_noise_multiplier(lambda at: 5 / at, 5 / nu, 1e-9, near) == pytest.approx(
            nu, rel=2e-9
        )


@pytest.mark.parametrize("nu", [SMALLEST_NOISE, LARGEST_NOISE])
def test_search_epsilon_accepts_range_ends(nu: float) -> None:
    assert Search(PoissonSampling(0.5), 2, 1).epsilon(nu, DELTA) > 0
