"""An epsilon that is printed is not below the one that was spent."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.accounting.formatting import (
    format_epsilon_column,
    format_large_delta_warning,
    format_noise_multiplier,
    format_spent_epsilon,
    format_used_noise_multiplier,
)


@given(epsilon=st.floats(1e-12, 1e12))
def test_format_spent_epsilon_rounds_up(epsilon: float) -> None:
    said = float(format_spent_epsilon(epsilon))
    assert epsilon * (1 - 2e-9) <= said <= epsilon * (1 + 1.0001e-3)


@given(digits=st.integers(1000, 9999), exponent=st.integers(-9, 9), off=st.floats(-5e-10, 5e-10))
def test_format_spent_epsilon_keeps_round_numbers(digits: int, exponent: int, off: float) -> None:
    epsilon = digits * 10.0**exponent
    assert float(format_spent_epsilon(epsilon * (1 + off))) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(1.23401, "1.235"), (2.99999, "3"), (3.001, "3.001"), (3.00001, "3.001"), (0.0, "0")],
)
def test_format_spent_epsilon_matches_expected_text(epsilon: float, text: str) -> None:
    assert format_spent_epsilon(epsilon) == text
    assert format_spent_epsilon(math.inf) == "inf"


@given(examples=st.integers(1, 10_000_000), share=st.floats(1e-6, 1e6))
def test_format_large_delta_warning_respects_limit(examples: int, share: float) -> None:
    said = format_large_delta_warning(share / examples, examples, "examples")
    if share < 1 - 1e-9:
        assert said == ""
    elif share > 1 + 1e-9:  # between them it is rounding's to say
        assert f"1 / {examples}:" in said


@given(spent=st.floats(1e-3, 1e4))
def test_format_epsilon_column_rounds_up(spent: float) -> None:
    said = format_epsilon_column(spent)
    assert spent * (1 - 2e-9) <= float(said) < spent + 1.0001e-4
    assert len(said.partition(".")[2]) == 4


@given(noise=st.floats(0.05, 1e4))
def test_format_noise_multiplier_rounds_up(noise: float) -> None:
    said = float(format_noise_multiplier(noise))
    assert noise * (1 - 2e-9) <= said < noise + 1.0001e-4
    assert len(format_noise_multiplier(noise).partition(".")[2]) == 4


@given(noise=st.floats(0.05, 1e4))
def test_format_used_noise_multiplier_rounds_down(noise: float) -> None:
    said = float(format_used_noise_multiplier(noise))
    assert noise - 1.0001e-4 < said <= noise * (1 + 2e-9)
    assert len(format_used_noise_multiplier(noise).partition(".")[2]) == 4


@given(decimals=st.integers(500, 10**8), off=st.floats(-5e-10, 5e-10))
def test_format_noise_multiplier_keeps_round_numbers(decimals: int, off: float) -> None:
    noise = decimals / 10_000
    for text in (format_noise_multiplier, format_used_noise_multiplier):
        assert text(noise * (1 + off)) == f"{noise:.4f}"
