"""Resolution of `train_private`'s method and its options. Without a `method`, it uses the
recommended default, which did best without a search.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from oso_dp.api.arguments import suggest_name
from oso_dp.api.options import TrainingOptions
from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, Method, find_method, method_names
from oso_dp.study.default_points import RECOMMENDED


def resolve_method_options(
    method: str | None,
    overrides: Mapping[str, Any],
    start: Mapping[str, float | None],
    method_options: Mapping[str, Any],
    earlier: Mapping[str, Any] | None = None,
    has_optimizer: bool = False,
    has_local_steps: bool = False,
) -> dict[str, Any]:
    """The method, its options, initial values and variant, as keyword arguments of TrainingOptions.

    Args:
        method: the method's name, or None for the recommended default.
        overrides: momentum, schedule and averaging; None where not given.
        start: initial values by name; None where not given.
        method_options: the method's constants by name.
        earlier: the options of the training to resume, which stay unless given anew.
        has_optimizer: whether a torch optimizer takes the steps; the default's learning rate and
            schedule are not for it.
        has_local_steps: whether users take several steps, so that rate 1 averages their updates.

    Raises:
        OsoError: for values of a method without the method: they mean something else to another.
    """
    if method is None:
        known = [name for method_class in _private() for name in _option_names(method_class)]
        for name in method_options:
            if name not in known:
                arguments = [field.name for field in fields(TrainingOptions)]
                raise OsoError(
                    "train_private: unknown argument "
                    f"{name!r}{suggest_name(name, [*arguments, *known])}"
                )
    explicit = {**_explicit(start), **_explicit(overrides)}
    if earlier is not None and method in (None, earlier["method"]):
        options = {**earlier["method_options"], **method_options}
        return {**earlier, **explicit, "method_options": options}
    if method is not None:
        return {**explicit, "method": method, "method_options": method_options}
    for name in (*_explicit(start), *method_options):
        raise OsoError(
            f"{name}: given without a method; set one, as method={_method_that_takes(name)!r} "
            f"(without one, {RECOMMENDED.method} has fixed values)"
        )
    default = {"method": RECOMMENDED.method, "method_options": dict(RECOMMENDED.constants)}
    if has_optimizer:
        return {**default, **explicit}
    if has_local_steps:
        return {**default, "learning_rate": 1.0, "momentum": 0.0, **explicit}
    names = _option_names(find_method(RECOMMENDED.method))
    point = {name: value for name, value in RECOMMENDED.point.items() if name in names}
    return {**default, **point, **RECOMMENDED.variant, **explicit}


def _private() -> Iterator[type[Method]]:
    yield from filter(lambda method: method.is_private, map(find_method, method_names()))


def _option_names(method: type[Method]) -> set[str]:
    """Names of a method's initial values and constants."""
    return {*method.search, *(field.name for field in fields(method.Options))}


def _method_that_takes(name: str) -> str:
    """The name of a method with this option, the paper's first."""
    names = [method.name for method in _private() if name in _option_names(method)]
    return next((method for method in PAPER_METHODS if method in names), names[0])


def _explicit(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
