"""Arguments as people give them: numbers of other libraries, names that are nearly right."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_OTHERWISE = {"lr": "learning_rate", "rho": "learning_rate", "gamma": "quantile"}
_BESIDES = ("model", "loss", "data", "epsilon", "delta", "accountant", "after", "progress")


def plain(value: Any) -> Any:
    """A scalar of NumPy or torch as Python's own number; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def hint(name: str, known: Iterable[str]) -> str:
    """What may have been meant, to be said behind a message; empty where nothing is near."""
    names = [*known, *_BESIDES]
    near = [_OTHERWISE[name]] if name in _OTHERWISE else get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
