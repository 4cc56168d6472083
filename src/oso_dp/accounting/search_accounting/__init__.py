"""How the privacy cost of a hyperparameter search is counted (`search_accounting`).

Each way is one file, which has its price, the stages of its plan and the account of its runs. Every
file in this folder is registered.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from oso_dp.accounting.search_accounting.base import AnySearch, Charge, SearchAccounting, StoredRun
from oso_dp.errors import OsoError

__all__ = [
    "AnySearch",
    "Charge",
    "SearchAccounting",
    "StoredRun",
    "describe_all",
    "find_cohort_error",
    "find_foreign_option",
    "find_search_accounting",
    "search_accounting_names",
    "search_option_names",
]

# Those that figures and tables name; `_search_accountings` has all.
COMPOSITION: Final = "composition"
RANDOM_STOPPING: Final = "random_stopping"
SINGLE: Final = "single"
LINEAR_SCALING: Final = "linear_scaling"


@cache
def _search_accountings() -> dict[str, SearchAccounting]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    every = [one() for one in _subclasses(SearchAccounting)]  # type: ignore[type-abstract]
    return {one.name: one for one in sorted(every, key=lambda one: one.name)}


def _subclasses(base: type[SearchAccounting]) -> Iterator[type[SearchAccounting]]:
    for way in base.__subclasses__():
        yield way
        yield from _subclasses(way)


def search_accounting_names() -> tuple[str, ...]:
    """The names of all ways to account for a search, sorted."""
    return tuple(_search_accountings())


def find_search_accounting(name: str) -> SearchAccounting:
    """The search accounting of this name; OsoError for an unknown name."""
    if name not in _search_accountings():
        allowed = ", ".join(search_accounting_names())
        raise OsoError(f"search_accounting: {name!r}; must be one of {allowed}")
    return _search_accountings()[name]


def describe_all() -> str:
    """One line on all of them, for help."""
    return "; ".join(f"{one.name}: {one.summary}" for one in _search_accountings().values())


def search_option_names() -> tuple[str, ...]:
    """The options of all ways to account for a search."""
    return tuple(option for one in _search_accountings().values() for option in one.options)


def find_foreign_option(name: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first option that is set (not None) and not this accounting's; whose it is."""
    own = find_search_accounting(name).options
    for option, value in options.items():
        if value is not None and option not in own:
            every = _search_accountings().values()
            return option, next(one.name for one in every if option in one.options)
    return None


def find_cohort_error(name: str, options: Mapping[str, Any], stage: str | None) -> str | None:
    """Why a cohort's search accounting, options (None: not set) and stage contradict, or None."""
    accounting = find_search_accounting(name)
    if stage is not None and not accounting.has_stages:
        owners = " or ".join(one.name for one in _search_accountings().values() if one.has_stages)
        return f"stage: only allowed if search_accounting is {owners}"
    if foreign := find_foreign_option(name, options):
        return f"{foreign[0]}: only allowed if search_accounting is {foreign[1]}"
    if error := accounting.find_error(options):
        return error
    stages = accounting.stages(options)
    if stage not in stages:
        return f"stage: {str(stage)[:40]!r}; must be one of {', '.join(map(str, stages))}"
    return None
