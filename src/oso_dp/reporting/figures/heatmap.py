"""Heat maps of complete grids over rho and C, or rho and gamma."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib import colors, patheffects
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from oso_dp import labels
from oso_dp.analysis.cells import POINT_TOLERANCE, list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import CELL, POINT, main_variants
from oso_dp.metrics import is_logarithmic
from oso_dp.paper.tables import paper_results
from oso_dp.reporting.figures.chart import FigureSpec, add_legend, make_panel_grid, plain_ticks

ORDER = 40
_MIN_FRACTION = 0.5  # of a grid's points; below it a heat map would be mostly blank


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    for dataset, k in list_panels(study):
        yield grid_figure(study, dataset, k)


def grid_figure(study: ResultSet, dataset: str, k: int) -> FigureSpec:
    """One figure per data set and k."""
    points = main_variants(study.points)
    points = points[(points["dataset"] == dataset) & (points["k"] == k)]
    panels = [
        (method, epsilon)
        for (method, epsilon), cell in points.groupby(["method", "epsilon"])
        if _vertical_axis(method)
        and len(cell) >= _MIN_FRACTION * (study.grid_size(dataset, method, k) or np.inf)
    ]
    # A figure with one sufficiently complete grid shows all grids.
    points = points[
        points["method"].isin({method for method, _ in panels})
        & points["epsilon"].isin({epsilon for _, epsilon in panels})
    ]
    metric = points["metric"].dropna().iloc[0] if points["metric"].notna().any() else ""
    printed = points.assign(mean=points["mean"] * labels.display_factor(metric))
    paper = paper_results()
    paper = paper[(paper["dataset"] == dataset) & (paper["k"] == k)]
    square = ", the square the paper's" if len(paper) else ""
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    caption = (
        f"{where}: the test metric over the whole grid, mean over seeds; brighter is better. The "
        f"ring is our best point{square}. Each panel's runs share one budget."
    )
    title = f"{where}: the metric over the complete grid"
    return FigureSpec(
        f"grid_{dataset}_k{k}", dataset, k, "grid", caption,
        lambda: draw_grid(printed, paper, metric, title),
        data=printed[[*CELL, *POINT, "mean", "seeds", "diverged"]],
    )  # fmt: skip


def _vertical_axis(method: str) -> str | None:
    """The hyperparameter that a method's grid searches beside rho, None unless there is one."""
    axes = labels.searched_axes(method)
    others = [axis for axis in axes if axis != "learning_rate"]
    return others[0] if len(axes) == 2 and len(others) == 1 else None


_NAMES = {"threshold": "threshold C", "quantile": "quantile γ"}
_NOT_RUN, _NO_VALUE = "#F2F2F2", "#B8B8B8"
# The markers fit into each other; the dark edge is visible on bright cells and on white.
_RIM = [patheffects.withStroke(linewidth=3.4, foreground="#222222")]
_RING: dict[str, Any] = {"linestyle": "", "mfc": "none", "color": "#FFFFFF", "path_effects": _RIM}
_OURS = {"marker": "o", "markersize": 6, "markeredgewidth": 1.6, **_RING}
_PAPERS = {"marker": "s", "markersize": 11, "markeredgewidth": 1.6, **_RING}


def draw_grid(points: pd.DataFrame, best: pd.DataFrame, metric: str, title: str) -> Figure | None:
    """A row of panels per method, a panel per epsilon, one colour scale; brighter is better.

    points: rows of `values.grid_points` of one data set at one k, in the printed unit. best: the
    paper's best points, columns method, epsilon, learning_rate, threshold, quantile. None without
    points of a method that searches rho and one more hyperparameter.
    """
    axes_of = {
        method: axis for method in points["method"].unique() if (axis := _vertical_axis(method))
    }
    points = points[points["method"].isin(axes_of)].dropna(subset="epsilon")
    if points["mean"].notna().sum() == 0:
        return None
    methods = labels.sort_methods(points["method"].unique())
    epsilons = sorted(points["epsilon"].unique())
    figure, axes = make_panel_grid(len(methods), len(epsilons), title)
    scale, shades = _scale(points["mean"].dropna(), metric)
    x = sorted(
        points["learning_rate"].unique()
    )  # one scale for all panels, a column for each value
    whole = 0  # cells of the panels, run or not
    for row, method in zip(axes, methods, strict=True):
        upward = axes_of[method]
        of_method = points[points["method"] == method]
        y = sorted(of_method[upward].unique())
        whole += len(x) * len(y) * len(epsilons)
        for panel, epsilon in zip(row, epsilons, strict=True):
            of_budget = of_method[of_method["epsilon"] == epsilon]
            paper_best = best[(best["method"] == method) & (best["epsilon"] == epsilon)]
            _panel(panel, of_budget, paper_best, (x, y, upward), scale, shades)
            panel.set_title(f"{labels.method_label(method)}, ε = {epsilon:g}")
        row[0].set_yticks(_middles(y), [_tick(value) for value in y], fontsize=7)
        row[0].set_ylabel(_NAMES[upward])
    for panel in axes[-1]:
        panel.set_xticks(_middles(x), [_tick(value) for value in x], rotation=90, fontsize=7)
        panel.set_xlabel("learning rate ρ")
    bar = figure.colorbar(
        ScalarMappable(scale, shades),
        ax=[panel for row in axes for panel in row],
        shrink=0.8,
        pad=0.02,
    )
    bar.set_label(labels.metric_label(metric))
    if is_logarithmic(metric):
        plain_ticks(bar.ax.yaxis)
    handles: list[Any] = [Line2D([], [], label="our best", **_OURS)]
    if best["method"].isin(methods).any():
        handles.append(Line2D([], [], label="paper's best", **_PAPERS))
    if points["mean"].isna().any():
        handles.append(Patch(color=_NO_VALUE, label="diverged without a value"))
    if len(points) < whole:
        handles.append(Patch(facecolor=_NOT_RUN, edgecolor="#9A9A9A", label="not run"))
    add_legend(figure, handles)
    return figure


def _scale(values: pd.Series, metric: str) -> tuple[colors.Normalize, str]:
    """The colour scale, from the worst to the best value; logarithmic for errors."""
    low, high = values.min(), values.max()
    if low == high:
        low, high = 0.9 * low, 1.1 * high
    if is_logarithmic(metric):
        return colors.LogNorm(low, high), "viridis_r"
    return colors.Normalize(low, high), "viridis"


def _panel(
    panel: Axes,
    points: pd.DataFrame,
    paper_best: pd.DataFrame,
    axes: tuple[list[float], list[float], str],
    scale: colors.Normalize,
    shades: str,
) -> None:
    x, y, upward = axes
    cells = np.full((len(y), len(x)), np.nan)
    panel.set_facecolor(_NOT_RUN)
    for point in points.to_dict("records"):
        row, column = y.index(point[upward]), x.index(point["learning_rate"])
        cells[row, column] = point["mean"]
        if np.isnan(point["mean"]):
            panel.add_patch(Rectangle((column, row), 1, 1, color=_NO_VALUE, zorder=0))
    seaborn.heatmap(
        cells,
        norm=scale,
        vmin=scale.vmin,  # else seaborn shades for them, also where there is no value
        vmax=scale.vmax,
        cmap=shades,
        cbar=False,
        xticklabels=False,
        yticklabels=False,
        ax=panel,
    )
    panel.invert_yaxis()  # upward, as all axes
    if np.isfinite(cells).any():
        by_rate = cells.T  # of equals the first, in the order in which the tables have points
        flat = np.nanargmin(by_rate) if shades.endswith("_r") else np.nanargmax(by_rate)
        right, up = np.unravel_index(flat, by_rate.shape)
        panel.plot(right + 0.5, up + 0.5, **_OURS)
    for point in paper_best.dropna(subset=["learning_rate", upward]).to_dict("records"):
        place = _place(x, point["learning_rate"]), _place(y, point[upward])
        if np.isfinite(place).all():
            panel.plot(*place, **_PAPERS)


def _tick(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def _place(values: list[float], value: float) -> float:
    """The position of a value among the ticks, NaN outside; the paper prints three digits."""
    if not (1 - POINT_TOLERANCE) * values[0] <= value <= (1 + POINT_TOLERANCE) * values[-1]:
        return math.nan
    return float(np.interp(np.log(value), np.log(values), _middles(values)))


def _middles(values: list[float]) -> list[float]:
    """The centres of cells of width one."""
    return [place + 0.5 for place in range(len(values))]
