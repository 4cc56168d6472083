"""Every value that the paper prints against ours, with the margin of equivalence."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_paper_cells, margin_near
from oso_dp.metrics import is_logarithmic
from oso_dp.reporting.figures.chart import (
    Axis,
    Chart,
    Facet,
    FigureSpec,
    method_series,
    plain_ticks,
)

ORDER = 5
_BAND = "#E4E4E4"


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    cells = judge_paper_cells(study).dropna(subset=["paper_mean", "mean"])
    if cells.empty:
        return
    caption = (
        f"The {len(cells)} values that the paper prints and that were run, ours against the "
        "paper's; bars are our standard deviations over seeds. On the diagonal both agree; the "
        "grey band is the data set's margin of equivalence. A value inside the band is not yet "
        "consistent: the rule of the verdicts also asks for the interval of the difference."
    )
    draw = overview_chart(cells, study.methods).draw
    yield FigureSpec("overview", "", None, "overview", caption, draw)


def overview_chart(cells: pd.DataFrame, methods: list[str]) -> Chart:
    """A panel per data set: ours over the paper's mean, with the band of equal values.

    cells: judged cells that have both values. methods: all of the report, for colours.
    """
    panels = cells["dataset"].map(labels.dataset_short) + ", " + cells["unit"]

    def draw_band(axes: Axes, here: pd.DataFrame) -> None:
        dataset, metric = here["dataset"].iloc[0], here["metric"].iloc[0]
        ends = here[["paper_mean", "mean"]].to_numpy()
        reach = 0.04 * np.ptp(ends) if not is_logarithmic(metric) else 0.0
        low, high = ends.min() - reach, ends.max() + reach
        if is_logarithmic(metric):
            low, high = low / 1.15, high * 1.15
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set(xlim=(low, high))
            plain_ticks(axes.xaxis)
            plain_ticks(axes.yaxis)
        x = np.geomspace(low, high, 40)
        margins = np.array([margin_near(dataset, value) for value in x])
        below = x - margins if not is_logarithmic(metric) else x**2 / (x + margins)
        axes.fill_between(x, below, x + margins, color=_BAND, linewidth=0, zorder=0)
        axes.plot(x, x, color="#9A9A9A", linewidth=0.9, zorder=1)

    return Chart(
        cells.assign(panel=panels),
        "Every printed value of the paper that was run: ours against the paper's",
        Axis("paper_mean", "the paper's value"),
        Axis("mean", "ours"),
        method_series(cells["method"].unique(), methods, linestyle=""),
        error="std",
        columns=Facet("panel"),
        abreast=3,
        share_y=False,
        legend=[Patch(color=_BAND, label="margin of equivalence")],
        decorate=draw_band,
    )
