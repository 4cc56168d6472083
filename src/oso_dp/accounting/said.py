"""How a promise is said: an epsilon never less than was spent, a delta that is worth little."""

import math
from decimal import ROUND_CEILING, Context

_DIGITS = 4
_ARITHMETIC = 1e-9  # of an epsilon: what two machines may differ by is no reason for a digit more


def epsilon_text(epsilon: float) -> str:
    """Rounded up to four digits: 1.2341 is "1.235", and 3.0000000001 is "3"."""
    if not math.isfinite(epsilon):
        return f"{epsilon:g}"
    upward = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{float(upward.create_decimal_from_float(epsilon * (1 - _ARITHMETIC))):.{_DIGITS}g}"


def large_delta_text(delta: float, examples: int) -> str:
    """What a delta that is not below 1 / n does not exclude; "" for a smaller one."""
    if delta * examples < 1:
        return ""
    return (
        f"Delta is not below 1 / {examples}: who gave away one of {examples} examples whole would "
        "keep this promise, too. It is worth something at a far smaller delta."
    )
