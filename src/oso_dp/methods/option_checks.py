"""A method's settings as a program gives them, held to their limits."""

import dataclasses
import operator
import sys
from collections.abc import Collection, Mapping
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.methods import MethodOptions

_HOLDS = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}
_SAID = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def check_number(name: str, value: Any, **limits: float) -> None:
    """OsoError unless `value` is a finite number within `limits` (gt, ge, lt, le)."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = number and abs(value) <= sys.float_info.max  # of a whole number of any length, too
    if not fits or not all(_HOLDS[key](value, limit) for key, limit in limits.items()):
        allowed = " and ".join(f"{_SAID[key]} {limit:g}" for key, limit in limits.items())
        raise OsoError(f"{name} {value!r}: must be a number{' ' if allowed else ''}{allowed}")


def make_options(
    kind: type[MethodOptions],
    values: Mapping[str, Any],
    where: str,
    besides: Collection[str] = (),
    without: Collection[str] = (),
) -> MethodOptions:
    """A method's settings; OsoError for a name or a value that they do not take.

    For the message: `where`, what was called, and the arguments that it takes `besides`. `without`:
    settings that are given otherwise there.
    """
    fields = {one.name: one for one in dataclasses.fields(kind) if one.name not in without}
    for name, value in values.items():
        if name not in fields:
            known = ", ".join(sorted({*fields, *besides})) or "none"
            raise OsoError(f"{where}: unknown argument {name!r}; the method's are {known}")
        check_number(name, value, **fields[name].metadata)
    return kind(**values)
