"""The metric of untuned runs over a hyperparameter, beside the best of a search."""

import textwrap
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.untuned_runs import with_alternatives
from oso_dp.analysis.values import POINT
from oso_dp.metrics import is_higher_better
from oso_dp.reporting.figures.chart import (
    GREY,
    Axis,
    Chart,
    Facet,
    FigureSpec,
    Line,
    method_series,
)

ORDER = 105
_MAX_COLUMNS = 8  # methods
_MAX_TITLE_LENGTH = 26  # characters above a panel
_DEPTH = 2.5  # below the searches' best, in units of the range above it, or
_MIN_VALUE = 1.0  # points of accuracy


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    for (dataset, k), rows in with_alternatives(study).groupby(["dataset", "k"], sort=False):
        where = f"{labels.dataset_short(dataset)}, k = {k}"
        others = [labels.method_label(method) for method in _methods(rows)[_MAX_COLUMNS:]]
        caption = (
            f"{where}: tuned and untuned runs under one budget. Each marker is an untuned run with "
            "the whole budget, over its ρ (AdamWOSM: C); bars are standard deviations over seeds. "
            "For methods with a second hyperparameter a line joins runs with the same value of it; "
            "hollow markers are variants with a schedule or averaging. Dashed: the best point of "
            "the method's own grid, where the budget covers all of its runs, with its standard "
            "deviation; dotted grey: that of Online's grid. Markers above the dashed line beat the "
            "search; values far below are cut off."
        )
        caption += f" Not drawn: {', '.join(others)}." if others else ""
        draw = untuned_chart(rows, f"{where}: untuned runs and searches", study.methods).draw
        name = f"untuned_runs_{dataset}_k{k}"
        yield FigureSpec(name, dataset, None, "untuned_runs", caption, draw, data=rows)


def untuned_chart(rows: pd.DataFrame, title: str, methods: list[str]) -> Chart:
    """One row of panels per epsilon, one column per method, with all its variants.

    rows: from `analysis.untuned_runs.with_alternatives`, of one data set at one k. methods: all of
    the report, for colours.
    """
    drawn = _methods(rows)[:_MAX_COLUMNS]
    rows = rows[rows["method"].isin(drawn)].dropna(subset="mean")
    order = {method: place for place, method in enumerate(drawn)}
    rows = rows.sort_values("method", key=lambda m: m.map(order), kind="stable")
    axes_of = {method: labels.searched_axes(method)[0] for method in drawn}
    records = rows.to_dict("records")
    rows = rows.assign(
        value=[row[axes_of[row["method"]]] for row in records],
        others=[str([row[n] for n in POINT if n != axes_of[row["method"]]]) for row in records],
    )
    metric = rows["metric"].iloc[0] if len(rows) else ""
    higher = is_higher_better(metric) if metric else True
    series = method_series(drawn, methods, label=False, linewidth=1.0)
    lines = []
    for row in rows.drop_duplicates(["epsilon", "method"]).to_dict("records"):
        panel = {"epsilon": row["epsilon"], "method": row["method"]}
        if pd.notna(row["own_mean"]):
            own = {"color": series[row["method"]]["color"], "linestyle": "--", "linewidth": 1.2}
            lines.append(Line(row["own_mean"], own, panel, half=row["own_std"]))
        if row["method"] != "online" and pd.notna(row["online_mean"]):
            online = {"color": "#9A9A9A", "linestyle": ":", "linewidth": 1.2}
            lines.append(Line(row["online_mean"], online, panel))

    def cut_off(axes: Axes, here: pd.DataFrame) -> None:
        limits = _limits(rows[rows["epsilon"] == here["epsilon"].iloc[0]])
        if higher and limits:
            axes.set_ylim(*limits)

    return Chart(
        rows,
        title,
        Axis(
            "value", lambda facet: f"{labels.SYMBOLS[axes_of[facet['method']]]} of the run", "log"
        ),
        Axis("mean", labels.metric_label(metric), "linear" if higher else "log"),
        series,
        styles={variant: _variant_style(variant) for variant in sorted(rows["variant"].unique())},
        style="variant",
        group="others",
        error="std",
        columns=Facet("method", _column_title),
        rows=Facet("epsilon", lambda epsilon: f"ε = {epsilon:g}"),
        share_x="col",
        lines=lines,
        legend=[
            Line2D([], [], label="best of the method's own search", linestyle="--", color=GREY),
            Line2D([], [], label="best of Online's search", linestyle=":", color="#9A9A9A"),
        ],
        decorate=cut_off,
    )


def _column_title(method: str) -> str:
    return textwrap.fill(labels.method_label(method), _MAX_TITLE_LENGTH)


def _methods(rows: pd.DataFrame) -> list[str]:
    return labels.sort_methods(rows.dropna(subset="mean")["method"].unique())


def _variant_style(variant: str) -> dict[str, Any]:
    """Runs with a schedule or averaging are hollow, on a dashed line."""
    if not variant:
        return {"label": "one untuned run"}
    dashes = (4, 2, 1, 2) if "averaged" not in variant else (4, 2, 1, 2, 1, 2)
    return {"label": f"the same, {variant}", "mfc": "white", "linestyle": (0, dashes)}


def _limits(rows: pd.DataFrame) -> tuple[float, float] | None:
    """Of the y axis, near the searches' best points at one epsilon."""
    searched = pd.concat([rows["own_mean"], rows["online_mean"]]).dropna()
    if searched.empty:
        return None
    bars = rows["std"].fillna(0)
    top = max((rows["mean"] + bars).max(), searched.max())
    least = min(searched.min(), rows["mean"].max())  # the best run is seen, however far behind
    height = max(top - least, _MIN_VALUE)
    lowest = min((rows["mean"] - bars).min(), (searched - rows["own_std"].max()).min())
    return max(lowest - 0.05 * height, least - _DEPTH * height), top + 0.2 * height
