"""Advanced composition: true bounds, looser than the accountants'."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.accounting.advanced_composition import (
    amplify_by_sampling,
    compose_advanced,
    compute_advanced_epsilon,
    compute_gaussian_epsilon,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import composed_event
from oso_dp.privacy.sampling import PoissonSampling

DELTA = 1e-5
ABADI = PoissonSampling(0.01)  # with nu = 4, as in the lecture's Figure 1


def accounted(sampling: PoissonSampling, nu: float, steps: int, accountant: str) -> float:
    return compute_epsilon_of_event(
        sampling, composed_event({(sampling, nu): steps}), DELTA, accountant
    )


def test_compute_gaussian_epsilon_matches_privacy_loss() -> None:
    """delta(epsilon) is the mean of (1 - e^(epsilon - loss))+, here summed over a fine grid."""
    nu, delta = 1.3, np.array([1e-2, 1e-4])
    x = np.linspace(-15, 15, 600_001)
    loss = (2 * x - 1) / (2 * nu**2)  # log of N(1, nu^2) over N(0, nu^2)
    for epsilon, target in zip(compute_gaussian_epsilon(nu, delta), delta, strict=True):
        excess = np.clip(-np.expm1(epsilon - loss), 0, None) * norm.pdf(x, 1, nu)
        assert np.sum(excess) * (x[1] - x[0]) == pytest.approx(target, rel=1e-3)


@pytest.mark.parametrize("nu", [0.02, 0.1, 0.7, 4.0, 60.0])
def test_compute_gaussian_epsilon_inverts_delta(nu: float) -> None:
    delta = np.geomspace(1e-15, 1e-3, 7)
    epsilon = compute_gaussian_epsilon(nu, delta)
    here = norm.logcdf(1 / (2 * nu) - epsilon * nu)
    there = epsilon + norm.logcdf(-1 / (2 * nu) - epsilon * nu)
    assert np.exp(here) * -np.expm1(there - here) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("rate", "nu"), [(0.01, 1.0), (0.3, 0.7), (1.0, 2.0)])
def test_compute_advanced_epsilon_step_matches_pld(rate: float, nu: float) -> None:
    sampling = PoissonSampling(rate)
    alone = compute_advanced_epsilon(sampling, nu, 1, DELTA)
    assert alone == pytest.approx(accounted(sampling, nu, 1, "pld"), rel=1e-5)


@pytest.mark.parametrize("steps", [100, 1000, 10_000, 40_000])
def test_compute_advanced_epsilon_exceeds_accountants(steps: int) -> None:
    advanced = compute_advanced_epsilon(ABADI, 4.0, steps, DELTA)
    rdp, pld = (accounted(ABADI, 4.0, steps, name) for name in ("rdp", "pld"))
    assert pld < rdp < advanced / 5


@pytest.mark.parametrize("steps", [50, 10_000])
def test_compute_advanced_epsilon_splits_delta_optimally(steps: int) -> None:
    def whole(log_share: float) -> float:
        mine = math.exp(log_share) * DELTA
        each = amplify_by_sampling(
            compute_gaussian_epsilon(4.0, np.array(mine / (steps * ABADI.rate))), ABADI.rate
        )
        return float(compose_advanced(each, steps, np.array(DELTA - mine)))

    best = minimize_scalar(whole, bounds=(math.log(1e-6), -1e-6), method="bounded")
    assert compute_advanced_epsilon(ABADI, 4.0, steps, DELTA) == pytest.approx(best.fun, rel=2e-3)


@given(
    rate=st.floats(0.001, 1),
    nu=st.floats(0.5, 20),
    steps=st.integers(1, 5000),
    delta=st.floats(1e-9, 1e-2),
)
@example(rate=0.08673003360587583, nu=20.0, steps=1, delta=0.0032060572184)  # once below nothing
@example(rate=0.11782015063801593, nu=17.177680199677614, steps=1, delta=0.0062018306)
def test_compute_advanced_epsilon_changes_monotonically(
    rate: float, nu: float, steps: int, delta: float
) -> None:
    sampling = PoissonSampling(rate)
    epsilon = compute_advanced_epsilon(sampling, nu, steps, delta)
    assert 0 <= epsilon < math.inf
    assert compute_advanced_epsilon(sampling, nu, steps + 1, delta) >= epsilon
    assert compute_advanced_epsilon(sampling, nu * 1.1, steps, delta) <= epsilon
    assert compute_advanced_epsilon(sampling, nu, steps, delta * 1.1) <= epsilon


@pytest.mark.parametrize("steps", [1, 7, 60])
@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0])
def test_compose_advanced_bounds_randomized_response(epsilon: float, steps: int) -> None:
    """The exact delta of k randomized responses is a sum over all numbers of heads."""
    slack = np.array([1e-6, 1e-3, 0.1])
    heads = np.arange(steps + 1)
    p = 1 / (1 + math.exp(-epsilon))
    one, other = binom.pmf(heads, steps, p), binom.pmf(heads, steps, 1 - p)
    for bound, delta in zip(compose_advanced(np.array(epsilon), steps, slack), slack, strict=True):
        assert np.clip(one - math.exp(bound) * other, 0, None).sum() <= delta


def test_compose_advanced_matches_textbook_formula() -> None:
    """Corollary 3.21: steps of this epsilon compose to at most the target epsilon."""
    steps, slack, target = 500, 1e-6, 0.8
    each = target / (2 * math.sqrt(2 * steps * math.log(1 / slack)))
    whole = compose_advanced(np.array(each), steps, np.array(slack))
    assert whole - steps * each * math.expm1(each) == pytest.approx(target / 2)
    assert whole <= target


@given(epsilon=st.floats(0, 1000), rate=st.floats(1e-9, 1))
def test_amplify_by_sampling_stays_between_bounds(epsilon, rate) -> None:
    (found,) = amplify_by_sampling(np.array([epsilon]), rate)
    assert 0 <= found <= epsilon * (1 + 1e-12)
    assert found >= min(rate * epsilon, epsilon) * (1 - 1e-12)  # log(1 + q (e^x - 1)) is convex


@pytest.mark.parametrize(
    ("nu", "steps", "delta", "culprit"),
    [
        (0.0, 10, DELTA, "noise_multiplier: 0"),
        (math.nan, 10, DELTA, "noise_multiplier: nan"),
        (math.inf, 10, DELTA, "noise_multiplier: inf"),
        (1.0, 0, DELTA, "steps: 0"),
        (1.0, 10, 0.0, "delta: 0"),
        (1.0, 10, 1.0, "delta: 1"),
    ],
)
def test_compute_advanced_epsilon_invalid_argument_rejected(
    nu: float, steps: int, delta: float, culprit: str
) -> None:
    with pytest.raises(OsoError, match=culprit):
        compute_advanced_epsilon(ABADI, nu, steps, delta)
