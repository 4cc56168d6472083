"""Parsers of option values (integers, numbers, paths), for typer and argparse.

They are stricter than Python's, which accept 1_000, non-ASCII digits, and an empty path for the
current folder.
"""

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Limits of threads or parallel processes: more would only wait, and thousands crash the process.
MAX_PER_CORE: Final = 4
MAX_ANYWHERE: Final = 16  # also with few cores
MAX_AT_ONCE: Final = max(MAX_ANYWHERE, MAX_PER_CORE * (os.cpu_count() or 1))
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_REAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,9})?|[-+]?(inf|nan)", re.I)


class OptionError(ValueError, argparse.ArgumentTypeError):
    """An invalid value; argparse and typer print the message after the option's name."""


def integer(minimum: float | None = None, maximum: float | None = None) -> Callable[[object], int]:
    """A parser of integers in decimal digits, between two limits."""
    allowed = f"must be an integer{_between(minimum, maximum)}"

    def parse(text: object) -> int:
        if not _INTEGER.fullmatch(str(text)):
            raise OptionError(f"{_short(text)}: {allowed}, of at most 18 digits")
        value = int(str(text))
        _check_limits(value, minimum, maximum, f"{text}: {allowed}")
        return value

    return parse


def real_number(
    minimum: float | None = None, maximum: float | None = None
) -> Callable[[object], float]:
    """A parser of decimal numbers; with a limit, they must be finite."""
    allowed = f"must be a number{_between(minimum, maximum)}"

    def parse(text: object) -> float:
        if not _REAL.fullmatch(str(text)):
            raise OptionError(f"{_short(text)}: {allowed}, such as 0.5 or 1e-5")
        value = float(str(text))
        if not math.isfinite(value) and not minimum is maximum is None:
            raise OptionError(f"{_short(text)}: {allowed}, and finite")
        _check_limits(value, minimum, maximum, f"{_short(text)}: {allowed}")
        return value

    return parse


def path(text: object) -> Path:
    """A parser of non-empty paths."""
    if not str(text).strip():
        raise OptionError(f"{str(text)!r}: must name a file or folder (. is the current folder)")
    return Path(str(text))


def _check_limits(value: float, minimum: float | None, maximum: float | None, message: str) -> None:
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise OptionError(message)


def _between(minimum: float | None, maximum: float | None) -> str:
    bounds = [] if minimum is None else [f">= {minimum:g}"]
    bounds += [] if maximum is None else [f"<= {maximum:g}"]
    reason = f" ({MAX_ANYWHERE}, or {MAX_PER_CORE} per core of this machine)"
    return " " * bool(bounds) + " and ".join(bounds) + reason * (maximum == MAX_AT_ONCE)


def _short(text: object) -> str:
    return str(text)[:80] + "..." * (len(str(text)) > 80)
