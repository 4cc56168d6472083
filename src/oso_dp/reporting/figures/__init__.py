"""The report's figures: one module for each figure, or kind of figure.

Modules are discovered automatically. Each has a function `plans`, which takes a `ResultSet` and
yields figure specifications with name, caption and drawing function. Modules with a smaller `ORDER`
come first. The page shows each figure as SVG, with PNG and PDF files next to it.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module

from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.figures.figure_spec import FigureSpec, WrittenFigure
from oso_dp.reporting.figures.parallel import RenderedFigure
from oso_dp.reporting.report_folder import ReportFolder


def every_plan(study: ResultSet) -> Iterator[FigureSpec]:
    """The figure specifications of all modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    planning = [module for module in modules if hasattr(module, "plans")]
    for module in sorted(planning, key=lambda module: module.ORDER):
        yield from module.plans(study)


def write_figures(
    plans: Sequence[FigureSpec], figures: Iterator[RenderedFigure | None], folder: ReportFolder
) -> list[WrittenFigure]:
    """Write each plan's figure, `figures/<name>.png` and `.pdf`; empty ones are left out."""
    pictures = []
    for plan, drawn in zip(plans, figures, strict=True):
        if drawn is None:
            continue
        folder.write(f"figures/{plan.name}.png", drawn.png)
        folder.write(f"figures/{plan.name}.pdf", drawn.pdf)
        if plan.data is not None:
            numbers = plan.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
            folder.write(f"figures/{plan.name}.csv", numbers)
        pictures.append(
            WrittenFigure(
                plan.name,
                plan.dataset,
                plan.k,
                plan.kind,
                plan.caption,
                drawn.link,
                int.from_bytes(drawn.png[16:20], "big"),  # the width in a PNG's header
                plan.measured,
                plan.data is not None,
            )
        )
    return pictures
