"""Numbers as text: nothing is lost that a reader compares."""

import math

import pytest

from oso_dp import labels


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        ((10, 10), ""),
        ((1, 10), "Runs of 1 epoch; the paper's have 10."),
        ((20, 10), "Runs of 20 epochs; the paper's have 10."),
        ((1, 20, math.nan), "Runs of 1 and 20 epochs; the paper's have 10."),
        ((math.nan,), ""),
    ],
)
def test_format_epochs_note_other_length_named(epochs, said: str) -> None:
    """The note names each length other than the paper's, whether shorter or longer."""
    assert labels.format_epochs_note(epochs) == said


@pytest.mark.parametrize("delta", [1e-5, 2e-5, 1e-6, 3.3e-7, 1e-10])
def test_format_delta_round_trips(delta: float) -> None:
    text = labels.format_delta(delta)
    assert float(text) == delta
    assert "e-0" not in text


@pytest.mark.parametrize("value", [0.004, -0.004, 0.006, -0.006, 12.345, -1.0])
def test_format_signed_keeps_sign_and_value(value: float) -> None:
    text = labels.format_signed(value)
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.005)
    assert text[0] in ("+" if value > 0 else "−") or text == "0.00"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.25, 3.125, 12.75, 100.0, 0.68264])
def test_format_budget_round_trips(epsilon: float) -> None:
    assert float(labels.format_budget(epsilon)) == epsilon


@pytest.mark.parametrize("epsilon", [None, math.nan])
def test_format_budget_missing_prints_none(epsilon: float | None) -> None:
    assert labels.format_budget(epsilon) == "none"


@pytest.mark.parametrize("around", [60.0, 120.0, 7_200.0, 36_000.0])
def test_format_duration_monotone_within_unit(
    around: float,
) -> None:
    """Within a unit a longer duration has no smaller number, correct up to rounding."""
    units = {"s": 1.0, "min": 60.0, "h": 3600.0}
    known: dict[str, float] = {}
    for tenths in range(-20, 21):
        seconds = around + tenths / 10
        count, unit = labels.format_duration(seconds).split()
        half = 0.05 if unit == "h" else 0.5
        assert abs(float(count) - seconds / units[unit]) <= half + 1e-9
        assert float(count) >= known.get(unit, 0.0)
        known[unit] = float(count)
