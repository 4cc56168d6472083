"""Sensitivity: adding or removing any one example moves a sum by at most the stated amount."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.helpers import Given, sums_of_one

from oso_dp.errors import OsoError
from oso_dp.privacy.queries import (
    QUERIES,
    SMALLEST_THRESHOLD,
    AdaptiveGradient,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    UnclippedCount,
)

# All but the one that claims nothing: a new query is tested like the others.
THRESHOLDED = [kind for kind in QUERIES if kind is not PlainGradient]
STABILISED = [AutomaticGradient, AdaptiveGradient]
ONE = slice(0, 1)
norms = st.floats(min_value=0.0, width=32) | st.just(math.nan)
thresholds = st.floats(min_value=0.0, max_value=2.0**100, width=32)


def contribution(query, norm: float) -> float:
    """The 2-norm of what one example with this gradient norm adds to the sum."""
    weight = query.weights(torch.tensor([[norm]]), ONE).item()
    if query.scalar:
        return abs(weight)
    return abs(weight) * norm if math.isfinite(norm) else (0.0 if weight == 0 else math.inf)


@pytest.mark.parametrize("kind", THRESHOLDED)
@given(norm=norms, threshold=thresholds)
def test_no_example_contributes_more_than_the_sensitivity(kind, norm, threshold) -> None:
    query = kind(1.0, torch.tensor([threshold]))
    assert contribution(query, norm) <= float(query.sensitivity(ONE)) * (1 + 1e-6)


@pytest.mark.parametrize("kind", THRESHOLDED)
def test_the_sensitivity_is_reached(kind) -> None:
    """A sensitivity stated too large would waste noise: some example reaches it."""
    query = kind(1.0, torch.tensor([0.5]))
    assert contribution(query, 1e7) == pytest.approx(float(query.sensitivity(ONE)))


@pytest.mark.parametrize("kind", THRESHOLDED)
@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_counts_for_nothing(kind, norm) -> None:
    weights = kind(1.0, torch.tensor([0.5])).weights(torch.tensor([[norm, 0.1]]), ONE)[0]
    assert weights[0] == 0
    assert weights.isfinite().all()


def test_clipping_follows_equation_4() -> None:
    norms = torch.tensor([[0.0, 1.0, 8.0]])
    weights = ClippedGradient(1.0, torch.tensor([2.0])).weights(norms, ONE)
    assert weights.tolist() == [[1.0, 1.0, 0.25]]


@pytest.mark.parametrize("kind", STABILISED)
@given(norm=norms, threshold=thresholds, log_stabiliser=st.floats(-6.0, 6.0))
def test_no_stabiliser_lets_an_example_exceed(kind, norm, threshold, log_stabiliser) -> None:
    query = kind(1.0, torch.tensor([threshold]), stabiliser=10**log_stabiliser)
    assert query.weights(torch.tensor([[norm]]), ONE).isfinite().all()
    assert contribution(query, norm) <= float(query.sensitivity(ONE)) * (1 + 1e-6)


@pytest.mark.parametrize("kind", STABILISED)
@pytest.mark.parametrize("stabiliser", [-0.1, 0.0, 1e-46, math.inf, math.nan])
def test_a_stabiliser_that_bounds_nothing_is_refused(kind, stabiliser) -> None:
    """Below zero a weight has no bound; 0 / 0 would tell of an example whose gradient is zero."""
    with pytest.raises(OsoError, match=r"_gradient': stabiliser .*; must be >= 1e-6 and <= 1e6"):
        kind(1.0, torch.ones(1), stabiliser=stabiliser)


def test_automatic_clipping_has_its_papers_weights() -> None:
    """By hand: C / (n + 0.01), and with r = 0.1 C / (n + r / (n + r))."""
    norm, threshold = torch.tensor([[0.0, 0.1, 1.0]]), torch.tensor([2.0])
    automatic = AutomaticGradient(1.0, threshold).weights(norm, ONE)
    torch.testing.assert_close(automatic, torch.tensor([[200.0, 2 / 0.11, 2 / 1.01]]))
    adaptive = AdaptiveGradient(1.0, threshold).weights(norm, ONE)
    torch.testing.assert_close(adaptive, torch.tensor([[2.0, 2 / 0.6, 2 / (1 + 0.1 / 1.1)]]))


def test_the_direction_is_the_derivative_of_the_clipped_gradient() -> None:
    """Equation 11 as a difference quotient of equation 4 in C, times a gradient of that norm."""
    norm, step = torch.tensor([[0.3, 0.99, 5.0]]), 1e-3
    low, high = (
        ClippedGradient(1.0, torch.tensor([c])).weights(norm, ONE) for c in (1.0, 1.0 + step)
    )
    direction = ClippedDirection(1.0, torch.tensor([1.0])).weights(norm, ONE)
    torch.testing.assert_close((high - low) / step, direction, atol=1e-4, rtol=1e-3)


def test_the_count_is_centred() -> None:
    norms = torch.tensor([[0.5, 1.0, 1.5]])
    votes = UnclippedCount(1.0, torch.tensor([1.0])).weights(norms, ONE)
    assert votes.tolist() == [[0.5, 0.5, -0.5]]


def test_each_run_has_its_own_threshold() -> None:
    query = ClippedGradient(1.0, torch.tensor([1.0, 2.0]))
    assert query.sensitivity(slice(0, 2)).tolist() == [1.0, 2.0]
    assert query.weights(torch.tensor([[4.0]]), slice(1, 2)).item() == 0.5


def test_a_vanishing_threshold_stays_measurable() -> None:
    """At C = 1e-30 a gradient of norm 1e-23 squares to zero in float32 and would pass unclipped."""
    query = ClippedGradient(1.0, torch.tensor([1e-30]))
    assert query.sensitivity(ONE).item() == pytest.approx(1e-12)
    assert query.weights(torch.tensor([[1.0]]), ONE).item() == pytest.approx(1e-12)
    assert SMALLEST_THRESHOLD == 1e-12


def test_a_weight_counts_as_long_as_float32_has_all_its_digits() -> None:
    """2 ** -126 is the smallest such number: an example of this norm still adds its direction."""
    query = ClippedDirection(1.0, torch.ones(1))
    weights = query.weights(torch.tensor([[2.0**125, 2.0**126, 2.0**127]]), ONE)
    assert weights.tolist() == [[2.0**-125, 2.0**-126, 0.0]]


@pytest.mark.parametrize("kind", [ClippedGradient, ClippedDirection, *STABILISED])
def test_no_example_adds_more_than_its_bound_however_long_it_is(kind) -> None:
    """C / n has all digits of float32 or is nothing: a smaller one could be rounded up by half."""
    lengths = torch.logspace(-14, 38, 5201, dtype=torch.float64).float()[None]
    for exponent in range(-12, 31):
        query = kind(1.0, torch.tensor([10.0**exponent]))
        weights = query.weights(lengths, ONE).double()
        bound = float(query.sensitivity(ONE)) * (1 + 2.0**-22)
        assert (weights * lengths.double() <= bound).all()


def test_the_plain_sum_claims_no_privacy() -> None:
    assert PlainGradient().sensitivity(ONE) == math.inf
    assert PlainGradient().noise_multiplier == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_clipped_sum_is_clipped_beside_one_that_is_not(order: int) -> None:
    gradients = Given(torch.tensor([[[3.0, 4.0], [0.0, 10.0]]]))
    queries = [ClippedGradient(1.0, torch.tensor([1.0])), PlainGradient()][::order]
    clipped, whole = sums_of_one(queries, gradients)[::order]
    torch.testing.assert_close(clipped, torch.tensor([0.6, 1.8]))
    torch.testing.assert_close(whole, torch.tensor([3.0, 14.0]))
