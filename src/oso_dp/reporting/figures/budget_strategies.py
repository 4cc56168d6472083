"""Values of the budget strategies: one row per strategy, one panel per epsilon."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from oso_dp import labels
from oso_dp.analysis.budget_strategies import (
    DEFAULT,
    STRATEGIES,
    budget_strategies,
    is_reference,
    strategy_title,
)
from oso_dp.analysis.result_set import ResultSet
from oso_dp.metrics import metric_direction
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec
from oso_dp.reporting.tables.budget_strategies import strategy_label

ORDER = 104
_MAX_DISTANCE = (
    3.0  # what is further below the best than this many times the searches' spread is cut off
)


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    for dataset, rows in budget_strategies(study).groupby("dataset", sort=False):
        where = labels.dataset_short(dataset)
        yield FigureSpec(
            f"one_budget_{dataset}",
            dataset,
            None,
            "one_budget",
            f"{where}: what one budget gives. Filled markers: the best checkpoint on the test set, "
            "of a search at its best point; hollow ones: both chosen on one half of the test set "
            "and judged by the other. Bars are standard deviations over seeds, the dashed line is "
            "Online's search. † A default that was chosen by looking at this data set; * a grid of "
            "which only a part was run. What is far off is cut off, and its name says where it is.",
            lambda rows=rows, where=where: draw_strategies(  # type: ignore[misc]
                rows, f"{where}: what one budget gives", study.methods
            ),
        )


def draw_strategies(rows: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """One panel per epsilon, one row per strategy.

    rows: from `analysis.budget_strategies`, of one data set. methods: all of the report, for
    colours. None if no strategy has a value.
    """
    rows = rows.dropna(subset="mean")
    if rows.empty:
        return None
    rows = rows.assign(label=[_label(row) for row in rows.to_dict("records")])
    lines = list(
        dict.fromkeys(rows.sort_values("way", key=_axis_positions, kind="stable")["label"])
    )
    epsilons = sorted(rows["epsilon"].unique())
    figure, (panels,) = layout.make_panel_grid(1, len(epsilons), title, sharex=False)
    figure.set_size_inches(3.4 + 2.4 * len(epsilons), 1.6 + 0.3 * len(lines))
    for epsilon, axes in zip(epsilons, panels, strict=True):
        here = rows[rows["epsilon"] == epsilon]
        _draw(axes, here, lines, methods)
        axes.set_title(f"ε = {epsilon:g}")
        axes.set_xlabel(labels.metric_label(here["metric"].iloc[0]))
        axes.xaxis.set_major_locator(MaxNLocator(4))
    panels[0].set_yticks(range(len(lines)), lines)
    panels[0].set_ylim(len(lines) - 0.4, -0.6)  # the first on top
    grey: dict[str, Any] = {"color": "#555555", "marker": "o", "linestyle": ""}
    layout.add_legend(
        figure,
        [
            Line2D([], [], label="best on the test set", **grey),
            Line2D([], [], label="chosen on the other half", mfc="white", **grey),
        ],
    )
    return figure


def _axis_positions(strategy: pd.Series) -> pd.Series:
    return strategy.map(list(STRATEGIES).index)


def _label(row: dict[str, Any]) -> str:
    name = strategy_label(row)
    mark = "†" if row["seen"] else "" if row["whole"] else "*"
    strategy = "default" if row["way"] == DEFAULT else strategy_title(row)
    return f"{name}{mark}: {strategy}"


def _draw(axes: Axes, rows: pd.DataFrame, lines: list[str], methods: list[str]) -> None:
    low, high = _span(rows)
    for row in rows.to_dict("records"):
        place = lines.index(row["label"])
        colour = styles.colours(methods)[row["method"]]
        marker = styles.markers(methods)[row["method"]]
        if not low <= row["mean"] <= high:
            side = low if row["mean"] < low else high
            text = f"{row['mean']:.3g}"
            axes.annotate(text, (side, place), ha="left" if side == low else "right", va="center")
            continue
        for name, offset, fill in (("mean", -0.14, colour), ("cross_mean", 0.14, "white")):
            if labels.is_missing(row[name]):
                continue
            bar = row["std" if name == "mean" else "cross_std"]
            axes.errorbar(
                row[name],
                place + offset,
                xerr=None if labels.is_missing(bar) else bar,
                color=colour,
                marker=marker,
                mfc=fill,
                linestyle="",
                capsize=2.0,
            )
    axes.set_xlim(low, high)
    for row in filter(is_reference, rows.to_dict("records")):
        axes.axvline(row["mean"], color="#9A9A9A", linestyle="--", linewidth=1.0)


def _span(rows: pd.DataFrame) -> tuple[float, float]:
    """The axis limits: all searches, and values at most `_MAX_DISTANCE` below them."""
    bars = rows["std"].fillna(0)
    searched = rows["way"] != DEFAULT
    near = rows if not searched.any() else rows[searched]
    spread = max(near["mean"].max() - near["mean"].min(), 3 * bars[near.index].max(), 1e-9)
    direction = metric_direction(rows["metric"].iloc[0])
    worst = (direction * near["mean"]).min() - _MAX_DISTANCE * spread
    kept = rows[direction * rows["mean"] >= worst]
    bars = bars[kept.index]
    crossed, width = kept["cross_mean"].dropna(), kept["cross_std"].fillna(0)
    width = width[crossed.index]
    sides = [kept["mean"] - bars, kept["mean"] + bars, crossed - width, crossed + width]
    values = pd.concat(sides)
    margin = 0.08 * max(values.max() - values.min(), 1e-9)
    return float(values.min() - margin), float(values.max() + margin)
