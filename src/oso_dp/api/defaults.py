"""What `train_private` does where no method is said: the default that did best without a search."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from oso_dp.api.arguments import suggest_name
from oso_dp.api.options import TrainingOptions
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method, method_names
from oso_dp.study.default_points import RECOMMENDED


def resolve_method_options(
    method: str | None,
    overrides: Mapping[str, Any],
    start: Mapping[str, float | None],
    settings: Mapping[str, float],
    kept: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Method, what is laid over its steps, starting values and constants, as `Choices` takes them.

    laid: momentum, schedule and averaging, start: starting values, by name, None where they were
    not said. settings: the method's constants. kept: how what training goes on from was trained,
    which stays unless another is said. OsoError for values of a method that was not said: another
    method's mean something else.
    """
    if method is None:
        known = [name for kind in _private() for name in _option_names(kind)]
        for name in settings:
            if name not in known:
                arguments = [one.name for one in fields(TrainingOptions)]
                raise OsoError(
                    "train_private: unknown argument "
                    f"{name!r}{suggest_name(name, [*arguments, *known])}"
                )
    explicit = {**_explicit(start), **_explicit(overrides)}
    if kept is not None and method in (None, kept["method"]):
        return {**kept, **explicit, "method_options": {**kept["method_options"], **settings}}
    if method is not None:
        return {**explicit, "method": method, "method_options": settings}
    for name in (*_explicit(start), *settings):
        raise OsoError(
            f"{name}: say of which method, as method={_method_that_takes(name)!r}; without one, "
            "train_private "
            f"takes {RECOMMENDED.method} with values of its own"
        )
    kind = find_method(RECOMMENDED.method)
    sayable = _option_names(kind)
    point = {name: value for name, value in RECOMMENDED.point.items() if name in sayable}
    return {**point, **RECOMMENDED.variant, **explicit, "method": RECOMMENDED.method}


def _private() -> Iterator[type[Method]]:
    """The methods that can be said."""
    yield from filter(lambda kind: kind.is_private, map(find_method, method_names()))


def _option_names(kind: type[Method]) -> set[str]:
    """Names of its starting values and constants."""
    return {*kind.search, *(one.name for one in fields(kind.Options))}


def _method_that_takes(name: str) -> str:
    """A method that takes this value: Online, if it does."""
    takers = [kind.name for kind in _private() if name in _option_names(kind)]
    return "online" if "online" in takers else takers[0]


def _explicit(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
