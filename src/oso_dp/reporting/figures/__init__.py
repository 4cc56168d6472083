"""The report's figures: one module for each figure, or group of figures.

Modules are discovered automatically. Each has a function `figures`, which takes a `ResultSet` and
yields `FigureSpec`s. Modules with a smaller `ORDER` come first. The page shows each figure; PNG and
PDF files are next to it.
"""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.chart import FigureSpec


def every_figure(study: ResultSet) -> Iterator[FigureSpec]:
    """The figures of all modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    found = [module for module in modules if hasattr(module, "figures")]
    for module in sorted(found, key=lambda module: module.ORDER):
        yield from module.figures(study)
