"""What `train_private` does where no method is said: the default that did best without a search."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from oso_dp.errors import OsoError
from oso_dp.methods import find_method, method_names
from oso_dp.private.choices import Choices
from oso_dp.private.given_values import hint
from oso_dp.study.defaults import RECOMMENDED


def way(
    method: str | None,
    laid: Mapping[str, Any],
    start: Mapping[str, float | None],
    settings: Mapping[str, float],
    after: str | None,
) -> dict[str, Any]:
    """Method, what is laid over its steps, and starting values, as `Choices` takes them.

    laid: schedule and averaging, start: starting values, by name, None where they were not said.
    settings: the method's constants. after: the method of what training goes on from, which stays
    unless another is said. OsoError for values of a method that was not said: another method's mean
    something else.
    """
    if method is None:
        known = [
            one.name for other in method_names() for one in fields(find_method(other).Settings)
        ]
        for name in settings:
            if name not in known:
                arguments = [one.name for one in fields(Choices)]
                raise OsoError(
                    f"train_private: unknown argument {name!r}{hint(name, [*arguments, *known])}"
                )
    if method is None and after is None:
        for name in (*(name for name, value in start.items() if value is not None), *settings):
            raise OsoError(
                f"{name}: say of which method, as method='online'; without one, train_private "
                f"takes {RECOMMENDED.method} with values of its own"
            )
    if method is None and after in (None, RECOMMENDED.method):
        kind = find_method(RECOMMENDED.method)
        sayable = {*kind.search, *(one.name for one in fields(kind.Settings))}
        point = {name: value for name, value in RECOMMENDED.point.items() if name in sayable}
        usual = {**point, **RECOMMENDED.laid}
        return {**usual, **_said(start), **_said(laid), "method": RECOMMENDED.method}
    return {**start, **_said(laid), "method": after if method is None else method}


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
