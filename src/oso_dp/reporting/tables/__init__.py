"""The report's tables: one module for each table, or kind of table.

Modules are discovered automatically. Each has a function `tables`, which takes the `ReportContext`
and returns the tables with name, title, notes and layout; the numbers come from `oso_dp.analysis`.
"""

from oso_dp.reporting.discovery import check_distinct, find_modules
from oso_dp.reporting.table import ReportContext, Table


def every_table(context: ReportContext) -> list[Table]:
    """The tables of all modules, in the order of module names."""
    modules = find_modules(__name__, __path__, "tables")
    tables: list[Table] = [table for module in modules for table in module.tables(context)]
    check_distinct("table", (table.name for table in tables))
    return tables
