"""Proposition 1 and the composition that it rests on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.errors import OsoError
from oso_dp.privacy.noise_composition import combined_noise_multiplier, gradient_noise_multiplier


@given(nu=st.floats(0.05, 100), ratio=st.floats(1.01, 1000))
def test_proposition_1_inverts_the_composition(nu: float, ratio: float) -> None:
    gradient = gradient_noise_multiplier(nu, ratio * nu)
    assert gradient > nu
    assert combined_noise_multiplier([gradient, ratio * nu]) == pytest.approx(nu, rel=1e-9)


def test_the_papers_heuristic_costs_one_percent() -> None:
    assert gradient_noise_multiplier(1.0, 7.124) == pytest.approx(1.01, abs=1e-5)


@pytest.mark.parametrize("query_noise", [0.5, 1.0])
def test_a_query_that_eats_the_budget_is_refused(query_noise: float) -> None:
    with pytest.raises(OsoError, match="must be > the step"):
        gradient_noise_multiplier(1.0, query_noise)


def test_no_noise_on_one_query_is_no_noise_at_all() -> None:
    assert combined_noise_multiplier([1.0, 0.0]) == 0.0
