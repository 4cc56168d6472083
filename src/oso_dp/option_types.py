"""What options' texts become: a number or a path, or ValueError that says what is allowed.

One parser for each type, for the commands of `oso` and for those of argparse. Python's own would
take 1_000, digits of other scripts, and an empty path, which is the current folder.
"""

import argparse
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Of threads, or of processes side by side: more of them only wait, and thousands end the process.
MAX_PER_CORE: Final = 4
MAX_ANYWHERE: Final = 16  # also where there are few cores
MAX_AT_ONCE: Final = max(MAX_ANYWHERE, MAX_PER_CORE * (os.cpu_count() or 1))
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_REAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,9})?|[-+]?(inf|nan)", re.I)


class OptionError(ValueError, argparse.ArgumentTypeError):
    """What argparse and typer say of an option, after its name."""


def integer(minimum: float | None = None, maximum: float | None = None) -> Callable[[object], int]:
    """A parser of whole numbers, written with decimal digits, between two limits."""
    wanted = f"must be a whole number{_between(minimum, maximum)}"

    def parse(text: object) -> int:
        if not _INTEGER.fullmatch(str(text)):
            raise OptionError(f"{_short(text)}: {wanted}, of at most 18 digits")
        value = int(str(text))
        _check_limits(value, minimum, maximum, f"{text}: {wanted}")
        return value

    return parse


def real_number(
    minimum: float | None = None, maximum: float | None = None
) -> Callable[[object], float]:
    """A parser of decimal numbers; with a limit they are finite, else their command says more."""
    wanted = f"must be a number{_between(minimum, maximum)}"

    def parse(text: object) -> float:
        if not _REAL.fullmatch(str(text)):
            raise OptionError(f"{_short(text)}: {wanted}, as 0.5 or 1e-5")
        value = float(str(text))
        if not math.isfinite(value) and not minimum is maximum is None:
            raise OptionError(f"{_short(text)}: {wanted}, and finite")
        _check_limits(value, minimum, maximum, f"{_short(text)}: {wanted}")
        return value

    return parse


def path(text: object) -> Path:
    """A path, which is not empty."""
    if not str(text).strip():
        raise OptionError(f"{str(text)!r}: must name a file or folder (. is the current folder)")
    return Path(str(text))


def _check_limits(
    value: float, minimum: float | None, maximum: float | None, otherwise: str
) -> None:
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise OptionError(otherwise)


def _between(minimum: float | None, maximum: float | None) -> str:
    least = "" if minimum is None else f" from {minimum:g}"
    most = "" if maximum is None else f" to {maximum:g}"
    per_core = maximum == MAX_AT_ONCE
    reason = f" ({MAX_ANYWHERE}, or {MAX_PER_CORE} for each of this machine's cores)"
    return least + most + reason * per_core


def _short(text: object) -> str:
    return str(text)[:80] + "..." * (len(str(text)) > 80)
