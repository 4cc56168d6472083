"""Formatting of epsilon and noise multipliers, rounded so that no text overstates the privacy."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from oso_dp.defaults import ROUNDING

_DIGITS = 4


def format_spent_epsilon(epsilon: float) -> str:
    """Rounded up to four significant digits: 1.2341 is "1.235", and 3.0000000001 is "3"."""
    if not math.isfinite(epsilon):
        return f"{epsilon:g}"
    upward = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{float(upward.create_decimal_from_float(epsilon * (1 - ROUNDING))):.{_DIGITS}g}"


def format_noise_multiplier(noise_multiplier: float) -> str:
    """Rounded up to four decimals: training with the printed value keeps the epsilon."""
    return _round_up(noise_multiplier)


def format_used_noise_multiplier(noise_multiplier: float) -> str:
    """Rounded down to four decimals: epsilon of the printed value is at least what was spent.

    For noise that was added; `format_noise_multiplier` is for noise to be added.
    """
    if not math.isfinite(noise_multiplier):
        return f"{noise_multiplier:g}"
    exact = Decimal(noise_multiplier * (1 + ROUNDING))
    return str(exact.quantize(Decimal("0.0001"), rounding=ROUND_FLOOR))


def format_epsilon_column(epsilon: float) -> str:
    """Rounded up to four decimals, for a table: at least what was spent."""
    return _round_up(epsilon)


def _round_up(number: float) -> str:
    if not math.isfinite(number):
        return f"{number:g}"
    exact = Decimal(number * (1 - ROUNDING))
    return str(exact.quantize(Decimal("0.0001"), rounding=ROUND_CEILING))


def format_large_delta_warning(delta: float, records: int, plural: str) -> str:
    """A warning for delta >= 1/n, with the records in the plural; "" for a smaller delta."""
    if delta * records < 1:
        return ""
    return (
        f"Delta is not below 1 / {records}: publishing one of {records} {plural} would satisfy "
        "this guarantee. Use a much smaller delta."
    )
