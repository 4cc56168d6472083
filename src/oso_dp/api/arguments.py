"""Coercion of arguments: scalars of NumPy and torch, and suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from oso_dp.errors import OsoError

_ALIASES = {
    **{"lr": "learning_rate", "rho": "learning_rate", "gamma": "quantile"},
    **dict.fromkeys(("max_grad_norm", "clip", "clipping_threshold", "l2_norm_clip"), "threshold"),
    **{"target_epsilon": "epsilon", "target_delta": "delta"},
}
_COMMON = ("model", "loss", "data", "epsilon", "delta", "accountant", "resume_from", "progress")


def check_named(argument: str, value: Any) -> None:
    """Raise OsoError unless `value` is a string."""
    if not isinstance(value, str):
        raise OsoError(f"{argument}: {value!r}; must be a string")


def call_for_number(function: str, value: Any) -> float:
    """The value that the user's function `function` returned, as a float; OsoError if not one."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise OsoError(f"{function}: returned {type(value).__name__}; must be a number") from None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A suffix "; did you mean X?" for a message; empty if no known name is similar."""
    # `name` itself may be an argument of another method.
    names = [candidate for candidate in (*known, *_COMMON) if candidate != name]
    near = [_ALIASES[name]] if name in _ALIASES else get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
