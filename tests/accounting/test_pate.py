"""Data-dependent costs of PATE: never below the exact divergence, never above the worst case."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from oso_dp.accounting.pate import (
    MOMENTS,
    ORDERS,
    argmax_rdp,
    check_votes,
    epsilon_of_rdp,
    gaussian_rdp,
    laplace_epsilon,
    laplace_moments,
    log_another_winner,
    log_answered,
    log_answered_not,
    threshold_rdp,
)
from oso_dp.errors import OsoError

DELTA = 1e-5
votes = st.lists(st.integers(0, 400), min_size=2, max_size=10).map(lambda row: np.array([row]))
pairs = st.tuples(st.integers(0, 300), st.integers(0, 300))


def log_divergence(p: tuple[float, float], other: tuple[float, float], order: float) -> float:
    """(order - 1) times the Rényi divergence of two outcomes, from logarithms of probabilities."""
    parts = [order * a + (1 - order) * b for a, b in zip(p, other, strict=True)]
    return float(np.logaddexp(*parts))


def laplace_wins(gap: float, scale: float) -> tuple[float, float]:
    """Logarithms of the probabilities that the first of two counts wins, and loses."""
    tail = math.exp(-abs(gap) / scale) * (1 + abs(gap) / (2 * scale)) / 2
    both = math.log1p(-tail), math.log(tail)
    return both if gap >= 0 else both[::-1]


def gaussian_wins(gap: float, noise: float) -> tuple[float, float]:
    at = gap / (math.sqrt(2) * noise)
    return float(log_ndtr(at)), float(log_ndtr(-at))


def neighbours(first: int, second: int) -> list[int]:
    """The gaps after one vote went from one of the two to the other."""
    gaps = [first - second]
    gaps += [first - second - 2] if first else []
    gaps += [first - second + 2] if second else []
    return gaps


@settings(max_examples=300)
@given(pair=pairs, scale=st.floats(0.5, 100))
@example(pair=(1, 0), scale=0.5)  # Theorem 3 does not hold there
def test_laplace_moments_bound_exact_divergence(pair, scale) -> None:
    (bound,) = laplace_moments(np.array([pair]), scale)
    here = laplace_wins(pair[0] - pair[1], scale)
    for gap in neighbours(*pair):
        there = laplace_wins(gap, scale)
        for moment, limit in zip(MOMENTS, bound, strict=True):
            assert log_divergence(here, there, moment + 1) <= limit * (1 + 1e-9) + 1e-12


@settings(max_examples=300)
@given(pair=pairs, noise=st.floats(0.5, 200))
def test_argmax_rdp_bounds_exact_divergence(pair, noise) -> None:
    (bound,) = argmax_rdp(np.array([pair]), noise)
    here = gaussian_wins(pair[0] - pair[1], noise)
    for gap in neighbours(*pair):
        there = gaussian_wins(gap, noise)
        for order, limit in zip(ORDERS, bound, strict=True):
            exact = log_divergence(here, there, order) / (order - 1)
            assert exact <= limit * (1 + 1e-9) + 1e-12, order


@settings(max_examples=300)
@given(largest=st.integers(1, 300), threshold=st.integers(0, 400), noise=st.floats(0.5, 200))
def test_threshold_rdp_bounds_exact_divergence(largest, threshold, noise) -> None:
    row = np.array([[largest, 0]])
    (bound,) = threshold_rdp(row, threshold, noise)
    here = (
        float(log_answered(row, threshold, noise)[0]),
        float(log_answered_not(row, threshold, noise)[0]),
    )
    for other in (largest - 1, largest + 1):
        at = (other - threshold) / noise
        there = float(log_ndtr(at)), float(log_ndtr(-at))
        for order, limit in zip(ORDERS, bound, strict=True):
            exact = log_divergence(here, there, order) / (order - 1)
            assert exact <= limit * (1 + 1e-9) + 1e-12, order


@given(row=votes, noise=st.floats(0.5, 200))
def test_pate_costs_never_exceed_worst_case(row, noise) -> None:
    assert (argmax_rdp(row, noise) <= ORDERS / noise**2 * (1 + 1e-12)).all()
    assert (threshold_rdp(row, 100, noise) <= ORDERS / (2 * noise**2) * (1 + 1e-12)).all()
    worst = 2 / noise**2 * MOMENTS * (MOMENTS + 1)
    assert (laplace_moments(row, noise) <= worst * (1 + 1e-12)).all()
    for cost in (argmax_rdp(row, noise), laplace_moments(row, noise)):
        assert (cost >= 0).all()


def test_pate_costs_fall_with_agreement() -> None:
    rows = np.array([[250, 0, 0], [200, 30, 20], [150, 60, 40], [84, 83, 83]])
    costs = argmax_rdp(rows, 40.0)[:, 20]
    assert (np.diff(costs) >= 0).all()
    assert costs[0] < costs[-1] / 1e3
    assert costs[-1] == ORDERS[20] / 40.0**2
    moments = laplace_moments(rows, 20.0)[:, 2]
    assert (np.diff(moments) >= 0).all()
    assert moments[0] < moments[-1] / 100


def test_threshold_rdp_distant_count_costs_little() -> None:
    rows = np.array([[250, 0], [150, 100]])
    above, below = threshold_rdp(rows, 200.0, 10.0)[:, 10]
    assert max(above, below) < ORDERS[10] / (2 * 10.0**2) / 100


@pytest.mark.parametrize("row", [[120, 100, 20, 10], [90, 80, 80], [200, 30, 20], [60, 60, 60, 60]])
def test_log_another_winner_exceeds_simulated_probability(row) -> None:
    noise, runs = 40.0, 200_000
    noisy = np.array(row) + np.random.default_rng(0).normal(0, noise, (runs, len(row)))
    seen = int((noisy.argmax(axis=1) != 0).sum())
    (log_bound,) = log_another_winner(np.array([row]), noise)
    assert seen <= runs * min(1.0, math.exp(log_bound)) + 5 * math.sqrt(runs)
    gaps = row[0] - np.array(row[1:])
    assert log_bound == pytest.approx(math.log(ndtr(-gaps / (math.sqrt(2) * noise)).sum()))


def test_gaussian_rdp_increases_with_q() -> None:
    """A bound on q must bound the cost."""
    for noise in (5.0, 40.0, 150.0):
        costs = gaussian_rdp(np.linspace(-400, -0.01, 2000), noise)
        assert (np.diff(costs, axis=0) >= -1e-12).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.2, 0.8]], "must be whole numbers >= 0"),
        ([[5, -1]], "must be whole numbers >= 0"),
        ([[math.nan, 1.0]], "must be whole numbers >= 0"),
        ([[5, 1], [4, 1]], "rows have different sums"),
        ([5, 1], r"votes: int64 \[2\]; must be numbers \[queries, classes\]"),
        ([[5], [5]], "with two classes or more"),
        ([["a", "b"]], "must be numbers"),
    ],
)
def test_check_votes_invalid_votes_rejected(rows, message) -> None:
    with pytest.raises(OsoError, match=message):
        check_votes(np.array(rows))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_pate_costs_invalid_noise_rejected(value) -> None:
    rows = np.array([[5, 1]])
    for call in (
        lambda: laplace_moments(rows, value),
        lambda: argmax_rdp(rows, value),
        lambda: threshold_rdp(rows, 1.0, value),
    ):
        with pytest.raises(OsoError, match=r"must be a (finite )?number > 0"):
            call()


@pytest.fixture(scope="module")
def published(shared) -> np.ndarray:
    """The votes of the 250 teachers on MNIST's test digits that the authors published."""
    found = np.load(shared / "data/pate_votes/mnist_250_teachers.npy", allow_pickle=False)
    assert found.shape == (9000, 10)
    return check_votes(found)


def test_laplace_epsilon_hundred_queries_match_published(published) -> None:
    """Epsilon is 2.04 (Papernot et al. 2017), data-independent 5.30; the paper prints 5.80."""
    moments = laplace_moments(published[:100], 20.0)
    assert laplace_epsilon(moments.sum(axis=0), DELTA) == pytest.approx(2.04, abs=0.005)
    worst = 100 * 2 / 20.0**2 * MOMENTS * (MOMENTS + 1)
    assert laplace_epsilon(worst, DELTA) == pytest.approx(5.30, abs=0.005)


def test_laplace_epsilon_thousand_queries_miss_published(published) -> None:
    """The paper prints 8.03 for a thousand unspecified queries; the first thousand cost 7.40."""
    moments = laplace_moments(published[:1000], 20.0)
    assert laplace_epsilon(moments.sum(axis=0), DELTA) == pytest.approx(7.40, abs=0.005)


def test_pate_costs_confident_votes_match_published(published) -> None:
    """286 of 640 answers cost 1.97 by the conversion of Papernot et al. 2018, 1.712 by ours."""
    asked = published[:640]
    probability = np.exp(log_answered(asked, 200.0, 150.0))
    assert probability.sum() == pytest.approx(286, rel=0.02)
    rdp = threshold_rdp(asked, 200.0, 150.0) + probability[:, None] * argmax_rdp(asked, 40.0)
    total = rdp.sum(axis=0)
    theirs = float(np.min(total + math.log(1 / DELTA) / (ORDERS - 1)))
    assert theirs == pytest.approx(1.97, abs=0.03)
    assert epsilon_of_rdp(total, DELTA) == pytest.approx(1.712, abs=0.002)
