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
def test_it_is_never_less_and_at_most_a_last_digit_more(epsilon: float) -> None:
    said = float(format_spent_epsilon(epsilon))
    assert epsilon * (1 - 2e-9) <= said <= epsilon * (1 + 1.0001e-3)


@given(digits=st.integers(1000, 9999), exponent=st.integers(-9, 9), off=st.floats(-5e-10, 5e-10))
def test_a_round_number_stays_what_it_is(digits: int, exponent: int, off: float) -> None:
    epsilon = digits * 10.0**exponent
    assert float(format_spent_epsilon(epsilon * (1 + off))) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(1.23401, "1.235"), (2.99999, "3"), (3.001, "3.001"), (3.00001, "3.001"), (0.0, "0")],
)
def test_it_reads_as_numbers_do(epsilon: float, text: str) -> None:
    assert format_spent_epsilon(epsilon) == text
    assert format_spent_epsilon(math.inf) == "inf"


@given(examples=st.integers(1, 10_000_000), share=st.floats(1e-6, 1e6))
def test_a_delta_is_said_to_be_large_from_one_in_all_on(examples: int, share: float) -> None:
    said = format_large_delta_warning(share / examples, examples, "examples")
    if share < 1 - 1e-9:
        assert said == ""
    elif share > 1 + 1e-9:  # between them it is rounding's to say
        assert f"1 / {examples}:" in said


@given(spent=st.floats(1e-3, 1e4))
def test_what_was_spent_is_never_said_to_be_less(spent: float) -> None:
    said = format_epsilon_column(spent)
    assert spent * (1 - 2e-9) <= float(said) < spent + 1.0001e-4
    assert len(said.partition(".")[2]) == 4


@given(noise=st.floats(0.05, 1e4))
def test_a_noise_is_never_said_to_be_less_and_at_most_a_last_decimal_more(noise: float) -> None:
    said = float(format_noise_multiplier(noise))
    assert noise * (1 - 2e-9) <= said < noise + 1.0001e-4
    assert len(format_noise_multiplier(noise).partition(".")[2]) == 4


@given(noise=st.floats(0.05, 1e4))
def test_noise_that_was_used_is_never_said_to_be_more(noise: float) -> None:
    said = float(format_used_noise_multiplier(noise))
    assert noise - 1.0001e-4 < said <= noise * (1 + 2e-9)
    assert len(format_used_noise_multiplier(noise).partition(".")[2]) == 4


@given(decimals=st.integers(500, 10**8), off=st.floats(-5e-10, 5e-10))
def test_a_round_noise_stays_what_it_is(decimals: int, off: float) -> None:
    noise = decimals / 10_000
    for text in (format_noise_multiplier, format_used_noise_multiplier):
        assert text(noise * (1 + off)) == f"{noise:.4f}"
