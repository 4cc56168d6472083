"""The report's tables: one module for each table, or kind of table.

Modules are discovered automatically. Each has a function `tables`, which takes the `ReportContext`
and returns the tables with name, title, notes and layout; the numbers come from `oso_dp.analysis`.
"""

import pkgutil
from importlib import import_module

from oso_dp.reporting.table import ReportContext, Table


def every_table(context: ReportContext) -> list[Table]:
    """The tables of all modules, in the order of module names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return [
        table for module in modules if hasattr(module, "tables") for table in module.tables(context)
    ]
