"""One file per method; each file in this folder is found by itself."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache

from oso_dp.errors import OsoError
from oso_dp.methods.base import AXES, Method, MethodOptions, State

__all__ = [
    "AXES",
    "PAPER_METHODS",
    "Method",
    "MethodOptions",
    "State",
    "find_method",
    "method_names",
]

# What the paper compares, in the order of its tables.
PAPER_METHODS = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")


@cache
def _methods() -> dict[str, type[Method]]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return by_name(_subclasses(Method))  # type: ignore[type-abstract]


def by_name(every: Iterable[type[Method]]) -> dict[str, type[Method]]:
    methods: dict[str, type[Method]] = {}
    for method in every:
        if "name" not in vars(method):
            continue  # a base that several methods share
        _check(method)
        if method.name in methods:
            raise OsoError(f"method {method.name!r}: defined twice, in {methods[method.name]} too")
        methods[method.name] = method
    return methods


def _check(method: type[Method]) -> None:
    """OsoError for a class whose name, title or search no study could use."""
    where = f"{method.__module__}: class {method.__name__}"
    for text in ("name", "title"):
        if not isinstance(getattr(method, text, None), str):
            raise OsoError(f"{where}: {text} must be a text")
    search = getattr(method, "search", None)
    if not isinstance(search, tuple) or not {*search} <= {*AXES}:
        raise OsoError(f"{where}: search {search!r}: must be a tuple of {', '.join(AXES)}")


def _subclasses(base: type[Method]) -> Iterator[type[Method]]:
    for method in base.__subclasses__():
        yield method
        yield from _subclasses(method)


def method_names() -> list[str]:
    """All methods that a configuration may name."""
    return sorted(_methods())


def find_method(name: str) -> type[Method]:
    """The method of this name; OsoError names the allowed ones."""
    if name not in _methods():
        raise OsoError(f"method {name!r}: not known; allowed are {', '.join(method_names())}")
    return _methods()[name]
