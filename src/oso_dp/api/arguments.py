"""Arguments as people give them: numbers of other libraries, names that are nearly right."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from oso_dp.errors import OsoError

_ALIASES = {"lr": "learning_rate", "rho": "learning_rate", "gamma": "quantile"}
_BESIDES = ("model", "loss", "data", "epsilon", "delta", "accountant", "resume_from", "progress")


def as_plain(value: Any) -> Any:
    """A scalar of NumPy or torch as Python's own number; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def check_named(argument: str, value: Any) -> None:
    """OsoError unless `value` is a text, which then names one of several."""
    if not isinstance(value, str):
        raise OsoError(f"{argument} {value!r}: must be a name, a text")


def call_for_number(function: str, value: Any) -> float:
    """What the caller's function of this name gave; OsoError where that is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise OsoError(f"{function}: gave {type(value).__name__}, not a number") from None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """What may have been meant, to be said behind a message; empty where nothing is near."""
    names = [one for one in (*known, *_BESIDES) if one != name]  # known elsewhere, not here
    near = [_ALIASES[name]] if name in _ALIASES else get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
