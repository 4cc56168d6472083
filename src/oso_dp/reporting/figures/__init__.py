"""The report's figures: one module for each figure, or group of figures.

Modules are discovered automatically. Each has a function `figures`, which takes a `ResultSet` and
yields `FigureSpec`s. Modules with a smaller `ORDER` come first. The page shows each figure; PNG and
PDF files are next to it.
"""

from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.discovery import check_distinct, find_modules
from oso_dp.reporting.figures.chart import FigureSpec


def every_figure(study: ResultSet) -> list[FigureSpec]:
    """The figures of all modules."""
    modules = find_modules(__name__, __path__, "figures")
    figures: list[FigureSpec] = [figure for module in modules for figure in module.figures(study)]
    check_distinct("figure", (figure.name for figure in figures))
    return figures
