"""The smooth sensitivity of PATE's costs, held against all neighbours and against integrals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from oso_dp.accounting.pate import epsilon_of_rdp, gaussian_plan_rdp
from oso_dp.accounting.smooth_sensitivity import (
    compute_release_rdp,
    compute_sanitized_cost,
    compute_smooth_sensitivity,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.votes import GaussianPlan

PLANS = [
    GaussianPlan(2, 2.0),
    GaussianPlan(2, 6.0),
    GaussianPlan(2, 3.0, None, 14.0, 4.0),
    GaussianPlan(2, 5.0, None, 20.0, 2.0),
    # Noise so large that twenty votes reach no sensitive place.
    GaussianPlan(2, 15.0),
    GaussianPlan(2, 20.0),
    GaussianPlan(2, 1e3, None, 20.0, 12.0),
]
rows = st.lists(st.integers(0, 2), min_size=20, max_size=20).map(
    lambda chosen: np.bincount(chosen, minlength=3)
)
both = st.tuples(rows, rows).map(np.array)


def cost(votes, answered, plan, order) -> float:
    return float(gaussian_plan_rdp(votes, answered, plan, np.array([order]))[0])


def neighbours(votes: np.ndarray):
    """All votes after one teacher changed its vote, whichever, in each query or only in one."""
    moves = [(old, new) for old in range(3) for new in range(3)]
    for first in moves:
        for second in moves:
            changed = votes.copy()
            for row, (old, new) in zip(changed, (first, second), strict=True):
                row[old] -= 1
                row[new] += 1
            if (changed >= 0).all():
                yield changed


@settings(max_examples=60, deadline=None)
@given(
    votes=both,
    answered=st.tuples(st.booleans(), st.booleans()).map(np.array),
    plan=st.sampled_from(PLANS),
    order=st.sampled_from([2.0, 4.0, 8.0]),
    beta=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_compute_smooth_sensitivity_bounds_neighbour_changes(
    votes, answered, plan, order, beta
) -> None:
    here = compute_smooth_sensitivity(votes, answered, plan, order, beta)
    exact = cost(votes, answered, plan, order)
    for changed in neighbours(votes):
        assert abs(cost(changed, answered, plan, order) - exact) <= here + 1e-12
        there = compute_smooth_sensitivity(changed, answered, plan, order, beta)
        assert there <= math.exp(beta) * here * (1 + 1e-9) + 1e-12


def test_compute_smooth_sensitivity_unanimous_votes_smooth() -> None:
    plan, answered = GaussianPlan(1, 20.0), np.array([True])
    for gone in range(8):
        here, there = (
            compute_smooth_sensitivity(
                np.array([[20 - moved, moved, 0]]), answered, plan, 8.0, 0.02
            )
            for moved in (gone, gone + 1)
        )
        assert here <= math.exp(0.02) * there * (1 + 1e-9)
        assert there <= math.exp(0.02) * here * (1 + 1e-9)


def test_compute_smooth_sensitivity_grows_with_doubt() -> None:
    plan = GaussianPlan(1, 5.0)
    sizes = [
        compute_smooth_sensitivity(
            np.array([[first, 250 - first]]), np.array([True]), plan, 8.0, 0.1
        )
        for first in (250, 180, 150, 140)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 1e3


def divergence(order: float, apart: float, deviations: tuple[float, float]) -> float:
    first, second = deviations

    def log_normal(x: float, mean: float, deviation: float) -> float:
        return -(((x - mean) / deviation) ** 2) / 2 - math.log(deviation * math.sqrt(2 * math.pi))

    def integrand(x: float) -> float:
        logs = order * log_normal(x, 0, first) + (1 - order) * log_normal(x, apart, second)
        return math.exp(min(700.0, logs))

    total, _ = quad(integrand, -200 * first, 200 * first, limit=2000, points=[0, apart])
    return math.log(total) / (order - 1)


@pytest.mark.parametrize(
    ("order", "beta", "noise"), [(2, 0.1, 1.0), (8, 0.02, 4.0), (14, 0.0329, 6.23)]
)
def test_compute_release_rdp_equals_largest_divergence(order, beta, noise) -> None:
    bound = compute_release_rdp(order, beta, noise)
    exact = []
    for ratio in np.exp(np.linspace(-beta, beta, 9)):
        for apart in (0.0, 0.5, 1.0):
            exact.append(divergence(order, apart * min(1, ratio), (noise, noise * ratio)))
    assert max(exact) == pytest.approx(bound, rel=1e-6)


def test_published_release_bound_below_divergence() -> None:
    """Theorem 23 of Papernot et al. 2018, at the order, beta and noise of their example."""
    order, beta, noise = 14, 0.0329, 6.23
    printed = order * math.exp(2 * beta) / noise**2 + (
        beta * order - math.log(1 - 2 * order * beta) / 2
    ) / (order - 1)
    ratio = math.exp(-beta)
    assert printed == pytest.approx(0.518, abs=0.001)
    exact = divergence(order, ratio, (noise, noise * ratio))
    assert exact == pytest.approx(1.61, abs=0.01)
    assert exact <= compute_release_rdp(order, beta, noise) * (1 + 1e-9)


def test_compute_release_rdp_falls_with_noise() -> None:
    assert (
        compute_release_rdp(8, 0.02, 8.0)
        < compute_release_rdp(8, 0.02, 4.0)
        < compute_release_rdp(8, 0.03, 4.0)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((30, 0.02, 4.0), "order: 30; must be < 25.5"),
        ((1, 0.02, 4.0), "must be > 1, > 0 and > 0"),
        ((8, 0.0, 4.0), "must be > 1, > 0 and > 0"),
        ((8, 0.02, -1.0), "must be > 1, > 0 and > 0"),
    ],
)
def test_compute_release_rdp_invalid_options_rejected(options, message) -> None:
    with pytest.raises(OsoError, match=message):
        compute_release_rdp(*options)


def test_compute_sanitized_cost_adds_release_cost() -> None:
    votes = np.array([[18, 1, 1], [9, 8, 3]])
    answered, plan = np.array([True, False]), PLANS[2]
    found = compute_sanitized_cost(votes, answered, plan, 1e-3, order=4, beta=0.05, noise=3)
    total = cost(votes, answered, plan, 4.0) + compute_release_rdp(4, 0.05, 3)
    assert found.epsilon == epsilon_of_rdp(np.array([total]), 1e-3, np.array([4.0]))
    assert found.deviation == 3 * compute_smooth_sensitivity(votes, answered, plan, 4.0, 0.05)


def test_compute_sanitized_cost_published_votes_priced(shared) -> None:
    """The authors' votes cost, with two deviations, more than the data-independent 2.53."""
    votes = np.load(shared / "data/pate_votes/mnist_250_teachers.npy", allow_pickle=False)[:640]
    noisy = votes.max(axis=1) + np.random.default_rng(0).normal(0, 150, 640)
    found = compute_sanitized_cost(
        votes, noisy > 200, GaussianPlan(640, 40.0, None, 200.0, 150.0), 1e-5
    )
    upper = found.epsilon + 2 * found.deviation
    assert upper == pytest.approx(2.85, abs=0.05)
    assert upper > 2.53
