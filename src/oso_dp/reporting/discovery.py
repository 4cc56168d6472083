"""How the report finds its tables and figures: each module of a package has one or several."""

import math
import pkgutil
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from oso_dp.errors import OsoError


def find_modules(package: str, paths: Iterable[str], function: str) -> list[ModuleType]:
    """The package's modules that have this function, by `ORDER` (those without last), then name."""
    names = sorted(module.name for module in pkgutil.iter_modules(paths))
    modules = [import_module(f"{package}.{name}") for name in names]
    found = [module for module in modules if hasattr(module, function)]
    return sorted(found, key=lambda module: getattr(module, "ORDER", math.inf))


def check_distinct(kind: str, names: Iterable[str]) -> None:
    """OsoError if two have one name: the second file would replace the first."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise OsoError(f"report: two {kind}s have the name {name!r}; rename one")
        seen.add(name)
