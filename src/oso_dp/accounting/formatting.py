"""How a promise is said: no number of it is rounded to the side that nobody paid for."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_DIGITS = 4
_ARITHMETIC = 1e-9  # of a number: what two machines may differ by is no reason for a digit more


def format_spent_epsilon(epsilon: float) -> str:
    """Rounded up to four digits: 1.2341 is "1.235", and 3.0000000001 is "3"."""
    if not math.isfinite(epsilon):
        return f"{epsilon:g}"
    upward = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{float(upward.create_decimal_from_float(epsilon * (1 - _ARITHMETIC))):.{_DIGITS}g}"


def format_noise_multiplier(noise_multiplier: float) -> str:
    """Rounded up to four decimals: whoever trains with what stands there keeps the epsilon."""
    return _round_up(noise_multiplier)


def format_used_noise_multiplier(noise_multiplier: float) -> str:
    """Rounded down to four decimals: whoever computes epsilon from it finds no less than was spent.

    Of noise that was drawn; `noise_text` says noise that is to be.
    """
    if not math.isfinite(noise_multiplier):
        return f"{noise_multiplier:g}"
    exact = Decimal(noise_multiplier * (1 + _ARITHMETIC))
    return str(exact.quantize(Decimal("0.0001"), rounding=ROUND_FLOOR))


def format_epsilon_column(epsilon: float) -> str:
    """Rounded up to four decimals, as a column of them is: no less than was spent."""
    return _round_up(epsilon)


def _round_up(number: float) -> str:
    if not math.isfinite(number):
        return f"{number:g}"
    exact = Decimal(number * (1 - _ARITHMETIC))
    return str(exact.quantize(Decimal("0.0001"), rounding=ROUND_CEILING))


def format_large_delta_warning(delta: float, examples: int) -> str:
    """What a delta that is not below 1 / n does not exclude; "" for a smaller one."""
    if delta * examples < 1:
        return ""
    return (
        f"Delta is not below 1 / {examples}: who gave away one of {examples} examples whole would "
        "keep this promise, too. It is worth something at a far smaller delta."
    )
