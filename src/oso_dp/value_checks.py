"""Numbers that are given to functions and options: as Python's, and within limits."""

import operator
import sys
from typing import Any, Final

from oso_dp.errors import OsoError

LIMITS: Final = ("gt", "ge", "lt", "le")
_SYMBOLS: Final = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def as_plain(value: Any) -> Any:
    """A scalar of NumPy or torch as a Python number; any other value unchanged."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def check_number(name: str, value: Any, **limits: float) -> None:
    """Raise OsoError unless `value` is a finite number within `limits` (gt, ge, lt, le)."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_finite = is_number and abs(value) <= sys.float_info.max  # also for integers of any size
    kind = "a finite number" if is_number and not is_finite else "a number"
    _check(name, value, kind, is_finite, limits)


def check_integer(name: str, value: Any, **limits: int) -> None:
    """Raise OsoError unless `value` is an integer within `limits` (gt, ge, lt, le)."""
    _check(name, value, "an integer", type(value) is int, limits)


def _check(name: str, value: Any, kind: str, fits: bool, limits: dict[str, Any]) -> None:
    if fits and all(getattr(operator, key)(value, limit) for key, limit in limits.items()):
        return
    allowed = " and ".join(f"{_SYMBOLS[key]} {limit:g}" for key, limit in limits.items())
    raise OsoError(f"{name}: {value!r}; must be {kind}{' ' * bool(allowed)}{allowed}")
