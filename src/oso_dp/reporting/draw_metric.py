"""The metric over epsilon per method, ours beside the paper's (the paper's Figures 3-11)."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp.reporting import canvas, labels

DODGE = 0.085  # methods stand side by side, so that error bars do not cover each other


def draw_metric(cells: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """Plot a comparison (`compare.compare`) of one data set at one k.

    Ours filled with solid lines and the standard deviation over seeds; the paper's hollow with
    dashed lines. None where there is no value at all. methods: all of the report, for colours.
    """
    private = cells.dropna(subset="epsilon") if len(cells) else cells
    valued = private[private["mean"].notna() | private["paper_mean"].notna()]
    reference = cells[cells["epsilon"].isna() & cells["mean"].notna()]
    if valued.empty and reference.empty:
        return None
    # Each epsilon of the design has its place, whether or not it was run.
    places = {e: i for i, e in enumerate(sorted(private["epsilon"].unique()))}
    figure, (axes,) = canvas.panels(1, title)
    figure.set_size_inches(6.8, 4.3)
    colour, marker = labels.colours(methods), labels.markers(methods)
    shown = labels.method_order(valued["method"].unique())
    handles = []
    dodge = min(DODGE, 0.7 / max(1, len(shown)))
    for i, method in enumerate(shown):
        rows = private[private["method"] == method]
        x = rows["epsilon"].map(places) + dodge * (i - (len(shown) - 1) / 2)
        look = {"color": colour[method], "marker": marker[method], "capsize": 2.5}
        _line(axes, x, rows["paper_mean"], rows["paper_std"], look, paper=True)
        _line(axes, x, rows["mean"], rows["std"], look, paper=False)
        handles.append(canvas.handle(method, methods, linestyle="-"))
    for row in reference.itertuples():
        axes.axhline(row.mean, color=colour[row.method], linestyle=(0, (1, 1.5)))
        handles.append(
            Line2D([], [], color=colour[row.method], linestyle=(0, (1, 1.5)), label="NoDP, ours")
        )
    if valued["mean"].notna().any() and valued["paper_mean"].notna().any():
        grey: dict[str, Any] = {"color": "#555555", "marker": "o"}
        handles.append(Line2D([], [], label="ours", **grey))
        handles.append(Line2D([], [], label="paper", linestyle="--", mfc="white", **grey))
    if cells["metric"].iloc[0] == "mse":  # spans more than a factor ten
        canvas.log_axis(axes)
    axes.margins(y=0.08)
    axes.set_xticks(list(places.values()), [f"{e:g}" for e in places])
    if places:
        axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel("ε of the whole grid")
    axes.set_ylabel(labels.metric_label(cells["metric"].iloc[0]))
    canvas.legend(figure, handles)
    return figure


def _line(
    axes: Axes, x: pd.Series, mean: pd.Series, std: pd.Series, look: dict[str, Any], paper: bool
) -> None:
    if mean.notna().sum() == 0:
        return
    style: dict[str, Any] = (
        {"linestyle": "--", "mfc": "white", "linewidth": 1.1, "elinewidth": 0.9, "zorder": 2}
        if paper
        else {"linestyle": "-", "elinewidth": 1.4, "zorder": 3}
    )
    shift = 0.02 if paper else -0.02
    known = mean.notna()
    # A single seed has no deviation: draw no bar rather than one of length zero.
    error = std[known] if std[known].notna().any() else None
    axes.errorbar(x[known] + shift, mean[known], yerr=error, **look, **style)
