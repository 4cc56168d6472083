"""An epsilon as text: what is stated is never less than what was spent."""

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
