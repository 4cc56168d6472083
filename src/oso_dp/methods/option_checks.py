"""Validation of a method's options (constants) against their limits."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from oso_dp.errors import OsoError
from oso_dp.methods.base import MethodOptions
from oso_dp.value_checks import LIMITS, check_integer, check_number


def check_declarations(options_class: type[MethodOptions], where: str) -> None:
    """OsoError unless each constant of a method's `Options` is declared as `option` says.

    where: the method's class, for messages.
    """
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    types = get_type_hints(options_class)
    for name, kind in types.items():
        if name not in fields:
            raise OsoError(f"{where}: option {name}: no field; Options must be a dataclass")
        if kind not in (float, int, bool) and get_origin(kind) is not Literal:
            raise OsoError(f"{where}: option {name}: must be a float, int, bool or Literal")
        limits = fields[name].metadata
        if unknown := {*limits} - {*LIMITS}:
            raise OsoError(
                f"{where}: option {name}: limit {min(unknown)!r}; must be one of "
                f"{', '.join(LIMITS)}"
            )
    defaults = {name: field.default for name, field in fields.items()}
    try:
        make_options(options_class, defaults, where)
    except OsoError as error:
        raise OsoError(f"{where}: default of option {error}") from None


def make_options(
    options_class: type[MethodOptions],
    values: Mapping[str, Any],
    caller: str,
    besides: Collection[str] = (),
    without: Collection[str] = (),
) -> MethodOptions:
    """A method's options from `values`.

    Args:
        options_class: the method's `Options`.
        values: by name.
        caller: the function that was called, for messages.
        besides: further arguments of the caller, for messages.
        without: options that the caller sets otherwise.

    Raises:
        OsoError: for a name or a value that is not allowed.
    """
    fields = {
        field.name: field
        for field in dataclasses.fields(options_class)
        if field.name not in without
    }
    types = get_type_hints(options_class)
    for name, value in values.items():
        if name not in fields:
            allowed = ", ".join(sorted({*fields, *besides})) or "none"
            raise OsoError(
                f"{caller}: unknown argument {name!r}; the method's arguments are {allowed}"
            )
        if words := get_args(types[name]):
            if value not in words:
                raise OsoError(f"{name}: {value!r}; must be one of {', '.join(words)}")
            continue
        if types[name] is bool:
            if not isinstance(value, bool):
                raise OsoError(f"{name}: {value!r}; must be True or False")
            continue
        check = check_integer if types[name] is int else check_number
        check(name, value, **fields[name].metadata)
    return options_class(**values)
