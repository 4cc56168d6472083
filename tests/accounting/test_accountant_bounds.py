"""Accountants at very small and very large deltas, noises and budgets: a bound, or one line."""

import math

import mpmath
import pytest
from tests.searches import scaled_cost

from oso_dp.accounting.accountants import (
    compute_epsilon,
    compute_epsilon_of_releases,
    smallest_delta,
)
from oso_dp.accounting.search import SMALLEST_NOISE, Search
from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch
from oso_dp.api.budget import remaining_noise_multiplier
from oso_dp.errors import OsoError
from oso_dp.privacy.dp_events import RdpAccountant, dp_event
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling

WHOLE = PoissonSampling(1.0)
# Epsilon of one Gaussian sum on all examples, by noise multiplier and delta: Theorem 8 of Balle and
# Wang 2018, inverted by bisection with mpmath's numbers of 80 digits.
DELTAS = (0.5, 1e-5, 1e-10, 1e-13, 1e-30)
CURVES = {
    0.3: (4.58015396483, 19.1307678344, 26.2019970758, 29.5243235164, 43.3359396881),
    1.0: (0, 4.37717809568, 6.54792406686, 7.56019846308, 11.7438830252),
    4.0: (0, 0.926341503998, 1.49202685699, 1.75163225366, 2.81307098369),
    50.0: (0, 0.0586322553061, 0.108707856798, 0.130686096616, 0.218268103373),
}
EXACT = {nu: dict(zip(DELTAS, curve, strict=True)) for nu, curve in CURVES.items()}
EDGES = [
    (nu, delta, exact)
    for nu, curve in EXACT.items()
    for delta, exact in curve.items()
    if (nu, delta) != (0.3, 0.5)  # which takes PLD five seconds
]
STEPS = [1, 10_000]  # at sqrt(steps) times the noise they are one sum


@pytest.mark.parametrize("noise", [0.3, 1.0, 1e3, 1e4, 1e6])
@pytest.mark.parametrize("rate", [1e-9, 1e-7, 1e-4, 0.999])
def test_rdp_tiny_divergences_at_least_exact(rate: float, noise: float) -> None:
    """Against sums of 60 digits: dp_accounting's are rounded below zero."""
    orders = [1.1, 2, 3, 46, 63]
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    found = RdpAccountant(orders).compose(step, 1000)._rdp
    with mpmath.workdps(60):
        for order, value in zip(orders[1:], found[1:], strict=True):
            k = [mpmath.mpf(number) for number in range(int(order) + 1)]
            terms = [
                mpmath.binomial(order, i)
                * (1 - mpmath.mpf(rate)) ** (order - i)
                * mpmath.mpf(rate) ** i
                * mpmath.exp(i * (i - 1) / (2 * mpmath.mpf(noise) ** 2))
                for i in k
            ]
            exact = 1000 * mpmath.log(sum(terms)) / (order - 1)
            assert value >= exact * (1 - 1e-6)
    assert found[0] > 0


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_compute_epsilon_many_tiny_steps_positive(accountant: str) -> None:
    """By the central limit theorem epsilon of these is about 0.049, and of one in 10^9 1e-6."""
    sampling = PoissonSampling(1e-7)
    assert Search(sampling, 10**9, 10**9).epsilon(1e4, 1e-9) > 0.049
    ledger = Ledger(sampling, [((SumQuery("g", 1e4),), 10**9)])
    assert compute_epsilon([ledger], 1e-10, accountant) > 1e-6


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("nu", "delta", "exact"), EDGES)
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_compute_epsilon_of_releases_bounds_exact(accountant, nu, delta, exact, steps) -> None:
    found = compute_epsilon_of_releases({(WHOLE, nu * steps**0.5): steps}, delta, accountant)
    assert exact * (1 - 1e-8) <= found
    assert found <= 1.6 * exact + (3 if delta == 0.5 else 0.02)


@pytest.mark.parametrize(("steps", "runs"), [(1, 1), (25, 4), (10_000, 1)])
@pytest.mark.parametrize("nu", [1.0, 4.0])
def test_search_pld_bounds_exact(nu, steps, runs) -> None:
    for delta in (1e-5, 1e-10):
        found = Search(WHOLE, steps, runs).epsilon(nu * (steps * runs) ** 0.5, delta, "pld")
        assert EXACT[nu][delta] * (1 - 1e-8) <= found <= EXACT[nu][delta] + 0.02


@pytest.mark.parametrize(("nu", "delta", "exact"), EDGES)
def test_prv_bounds_exact_or_names_delta(nu, delta, exact) -> None:
    asked = {(WHOLE, 10 * nu): 100}, delta
    if delta < 1e-11:
        with pytest.raises(OsoError, match=rf"^delta: {delta!r}; must be >= 1e-11 .* rdp"):
            compute_epsilon_of_releases(*asked, "prv")
    else:
        found = compute_epsilon_of_releases(*asked, "prv")
        assert exact <= found <= min(exact + 0.02, compute_epsilon_of_releases(*asked, "rdp"))


@pytest.mark.parametrize(
    ("nu", "rate", "steps", "delta", "true"),
    [
        # By Fourier transforms of losses that are tilted into the bulk, which keeps all digits.
        (1.2, 0.002, 5000, 1e-13, 1.06314),
        (1.0, 0.01, 1000, 1e-12, 3.91430),
        (4.0, 0.00033, 10_000, 1e-12, 0.056857),
        (2.0, 0.5, 20, 1e-12, 9.92217),
    ],
)
def test_compute_epsilon_of_releases_bounds_subsampled(nu, rate, steps, delta, true) -> None:
    releases = {(PoissonSampling(rate), nu): steps}
    assert all(
        compute_epsilon_of_releases(releases, delta, name) >= true for name in ("rdp", "pld")
    )
    with pytest.raises(OsoError, match=rf"^delta: {delta}; .* accountant prv after {steps} steps"):
        compute_epsilon_of_releases(releases, delta, "prv")


@pytest.mark.parametrize("found", [0.1, 1.9, math.inf])
def test_prv_lies_between_pld_and_rdp(found: float, monkeypatch) -> None:
    releases = {(PoissonSampling(0.01), 1.0): 1000}
    pld, rdp = (compute_epsilon_of_releases(releases, 1e-5, name) for name in ("pld", "rdp"))
    assert 1.8 < pld < 1.9 < rdp
    monkeypatch.setattr("opacus.accountants.PRVAccountant.get_epsilon", lambda *_: found)
    asked = compute_epsilon_of_releases(releases, 1e-5, "prv")
    assert asked == pytest.approx(min(max(found, pld), rdp), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 1000, 5000, 10**6])
def test_prv_smallest_delta_grows_with_steps(steps: int) -> None:
    least = smallest_delta(steps)
    assert least == pytest.approx(max(1e-11, 1e-14 * steps))
    with pytest.raises(OsoError, match=rf"must be >= {least:.4g} for accountant prv"):
        compute_epsilon_of_releases({(WHOLE, 1e4): steps}, 0.99 * least, "prv")


@pytest.mark.parametrize(("nu", "steps"), [(0.05, 1), (1e-6, 1), (1.0, 2_000_001), (100.0, 10**9)])
def test_prv_beyond_memory_rejected(nu: float, steps: int) -> None:
    with pytest.raises(
        OsoError,
        match=r"^accountant: 'prv' for .* takes minutes .* use accountant rdp, whose epsilon",
    ):
        compute_epsilon_of_releases({(PoissonSampling(0.5), nu): steps}, 1e-4, "prv")


BUDGETS = [
    *((0.01, 1e-5), (0.001, 1e-5), (3.0, 1e-16), (3.0, 1e-13), (50.0, 1e-40), (1e-6, 0.1)),
    *((1.0, 1e-8), (1000.0, 1e-40)),
]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_search_noise_by_pld_keeps_budget(rate, epsilon, delta) -> None:
    search = Search(PoissonSampling(rate), 10, 2)
    noise = {}
    for name in ("rdp", "pld"):
        try:
            nu = noise[name] = search.noise_multiplier(epsilon, delta, name)
        except OsoError:
            assert name == "rdp" or epsilon > 200
            continue
        if nu > SMALLEST_NOISE:
            assert 0.99 * epsilon - 1e-5 <= search.epsilon(nu, delta, name) <= epsilon
            assert search.epsilon(nu, delta, name) <= search.epsilon(0.99 * nu, delta, name)
    assert noise.get("pld", 0.0) <= noise.get("rdp", math.inf)


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta"),
    [(0.002, 50_000, 0.01, 1e-5), (0.01, 20_000, 0.02, 1e-6), (0.001, 100_000, 0.01, 1e-5)],
)
def test_search_pld_tiny_losses_equals_rdp(rate, steps, epsilon, delta) -> None:
    """Each step's losses are smaller than the interval to which PLD rounds them."""
    search = Search(PoissonSampling(rate), steps, 1)
    noise = search.noise_multiplier(epsilon, delta)
    assert search.noise_multiplier(epsilon, delta, "pld") == noise
    assert search.epsilon(noise, delta, "pld") == search.epsilon(noise, delta) <= epsilon


@pytest.mark.parametrize("name", ["rdp", "pld"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.001, 1e-16), (1e-6, 1e-13), (0.01, 1e-40)])
def test_search_budget_beyond_noise_rejected(epsilon, delta, name) -> None:
    with pytest.raises(OsoError, match=rf"^epsilon: {epsilon:g}; no noise .* at delta {delta} for"):
        Search(WHOLE, 10, 2).noise_multiplier(epsilon, delta, name)


def test_linear_scaling_search_pld_keeps_budget() -> None:
    search = LinearScalingSearch(WHOLE, 3, 2)
    for epsilon, delta in ((0.1, 1e-5), (3.0, 1e-16)):
        rdp, pld = (search.noise_multipliers(epsilon, delta, name) for name in ("rdp", "pld"))
        assert all(mine <= one for mine, one in zip(pld[:2], rdp[:2], strict=True))
        assert 0.99 * epsilon <= scaled_cost(search, pld, delta, "pld") <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.02, 1e-5), (3.0, 1e-16), (3.0, 1e-13)])
def test_remaining_noise_multiplier_keeps_budget(epsilon, delta) -> None:
    spent = [Ledger(WHOLE, [((SumQuery("g", 40.0 / epsilon),), 4)])]
    rdp, pld = (
        remaining_noise_multiplier(WHOLE, 4, epsilon, delta, name, spent) for name in ("rdp", "pld")
    )
    assert pld <= rdp * (1 + 1e-3)
    more = Ledger(WHOLE, [((SumQuery("g", pld),), 4)])
    assert 0.99 * epsilon <= compute_epsilon([*spent, more], delta, "pld") <= epsilon
