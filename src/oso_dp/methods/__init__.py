"""The DP optimizers ("methods"); each class in this folder that has a name is registered."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache

from oso_dp.errors import OsoError
from oso_dp.methods.base import AXES, Method, MethodOptions, State
from oso_dp.methods.option_checks import check_declarations

__all__ = [
    "AXES",
    "PAPER_METHODS",
    "Method",
    "MethodOptions",
    "State",
    "find_method",
    "method_names",
]

# The methods that the paper compares, in the order of its tables.
PAPER_METHODS = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")


@cache
def _methods() -> dict[str, type[Method]]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return by_name(_subclasses(Method))  # type: ignore[type-abstract]


def by_name(methods: Iterable[type[Method]]) -> dict[str, type[Method]]:
    """The methods by name; OsoError for an invalid or duplicate name or title."""
    named: dict[str, type[Method]] = {}
    for method in methods:
        if "name" not in vars(method):
            continue  # a base class of several methods
        _check(method)
        for other in named.values():
            for attribute in ("name", "title"):
                shared = getattr(method, attribute)
                if getattr(other, attribute) == shared:
                    raise OsoError(
                        f"method: {attribute} {shared!r}; {_place(method)} and {_place(other)} "
                        "have it; rename one"
                    )
        named[method.name] = method
    return named


def _check(method: type[Method]) -> None:
    """OsoError for a class with an invalid name, title or search."""
    where = _place(method)
    for attribute in ("name", "title"):
        if not isinstance(getattr(method, attribute, None), str):
            raise OsoError(f"{where}: {attribute} must be a string")
    if missing := sorted(getattr(method, "__abstractmethods__", ())):
        raise OsoError(f"{where}: {' and '.join(missing)} must be defined")
    check_declarations(method.Options, where)
    search = getattr(method, "search", None)
    if not isinstance(search, tuple) or not {*search} <= {*AXES}:
        raise OsoError(f"{where}: search {search!r}; must be a tuple of {', '.join(AXES)}")


def _place(method: type[Method]) -> str:
    return f"{method.__module__}: class {method.__name__}"


def _subclasses(base: type[Method]) -> Iterator[type[Method]]:
    for method in base.__subclasses__():
        yield method
        yield from _subclasses(method)


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(_methods())


def find_method(name: str) -> type[Method]:
    """The method of this name; OsoError for an unknown name."""
    if name not in _methods():
        raise OsoError(f"method: {name!r}; must be one of {', '.join(method_names())}")
    return _methods()[name]
