"""The report's tables: each file here is one, or one kind.

A file is found by itself. Its function `tables` is handed the report's `Sources` and returns what
there is to show; its name in the report, its title, notes and layout stand in the file, and the
numbers come from `oso_dp.analysis`.
"""

import pkgutil
from importlib import import_module

from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table


def every_table(sources: ReportContext) -> list[Table]:
    """The tables of all files, by file name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return [
        table for module in modules if hasattr(module, "tables") for table in module.tables(sources)
    ]
