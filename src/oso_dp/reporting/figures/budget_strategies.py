"""Values of the budget strategies: one row per strategy, one panel per epsilon."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
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
from oso_dp.reporting.figures.chart import BY_EPSILON, Axis, Chart, FigureSpec, Line, method_series
from oso_dp.reporting.tables.budget_strategies import strategy_label

ORDER = 104
_MAX_DISTANCE = 3.0  # below the best, in units of the searches' spread; values beyond are cut off
_STYLES = {
    "mean": {"label": "best on the test set", "linestyle": ""},
    "cross_mean": {"label": "chosen on the other half", "linestyle": "", "mfc": "white"},
}


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    for dataset, rows in budget_strategies(study).groupby("dataset", sort=False):
        where = labels.dataset_short(dataset)
        caption = (
            f"{where}: budget strategies. Filled markers: the best checkpoint on the test set, of "
            "a search at its best point; hollow ones: both chosen on one half of the test set and "
            "judged by the other. Bars are standard deviations over seeds, the dashed line is "
            "Online's search. † A default that was chosen on this data set; * an incomplete grid. "
            "Values far below the best are cut off and printed at the edge."
        )
        draw = strategies_chart(rows, f"{where}: strategies under one budget", study.methods).draw
        name = f"budget_strategies_{dataset}"
        yield FigureSpec(name, dataset, None, "budget_strategies", caption, draw)


def strategies_chart(rows: pd.DataFrame, title: str, methods: list[str]) -> Chart:
    """One panel per epsilon, one row per strategy.

    rows: from `analysis.budget_strategies`, of one data set. methods: all of the report, for
    colours.
    """
    rows = rows.dropna(subset="mean")
    rows = rows.assign(label=[_label(row) for row in rows.to_dict("records")])
    limits = {epsilon: _limits(here) for epsilon, here in rows.groupby("epsilon")}
    near = [limits[row["epsilon"]] for row in rows.to_dict("records")]
    inside = rows["mean"].between([low for low, _ in near], [high for _, high in near])
    ranks = rows["strategy"].map(list(STRATEGIES).index)
    ordered = rows.assign(rank=ranks).sort_values("rank", kind="stable")["label"]

    def set_limits(axes: Axes, here: pd.DataFrame) -> None:
        low, high = limits[here["epsilon"].iloc[0]]
        off = rows[(rows["epsilon"] == here["epsilon"].iloc[0]) & ~inside]
        for row in off.to_dict("records"):
            side, align = (low, "left") if row["mean"] < low else (high, "right")
            place = list(dict.fromkeys(ordered)).index(row["label"])
            axes.annotate(f"{row['mean']:.3g}", (side, place), ha=align, va="center")
        axes.set_xlim(low, high)
        axes.xaxis.set_major_locator(MaxNLocator(4))

    drawn = [
        rows[inside].assign(value=rows[name], bar=rows[name.replace("mean", "std")], chosen=name)
        for name in _STYLES
    ]
    metric = rows["metric"].iloc[0] if len(rows) else ""
    return Chart(
        pd.concat(drawn),
        title,
        Axis("value", labels.metric_label(metric)),
        Axis("label", categories={label: label for label in ordered}),
        method_series(rows["method"].unique(), methods, label=False),
        styles=_STYLES,
        style="chosen",
        error="bar",
        columns=BY_EPSILON,
        abreast=max(1, len(limits)),
        dodge=(0.0, 0.28),
        lines=[
            Line(
                row["mean"],
                {"color": "#9A9A9A", "linestyle": "--", "linewidth": 1.0},
                {"epsilon": row["epsilon"]},
                vertical=True,
            )
            for row in filter(is_reference, rows.to_dict("records"))
        ],
        decorate=set_limits,
    )


def _label(row: dict[str, Any]) -> str:
    mark = "†" if row["seen"] else "" if row["whole"] else "*"
    strategy = "default" if row["strategy"] == DEFAULT else strategy_title(row)
    return f"{strategy_label(row)}{mark}: {strategy}"


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Of the x axis: all searches, and values at most `_MAX_DISTANCE` below them."""
    bars = rows["std"].fillna(0)
    searched = rows["strategy"] != DEFAULT
    near = rows if not searched.any() else rows[searched]
    spread = max(near["mean"].max() - near["mean"].min(), 3 * bars[near.index].max(), 1e-9)
    direction = metric_direction(rows["metric"].iloc[0])
    worst = (direction * near["mean"]).min() - _MAX_DISTANCE * spread
    kept = rows[direction * rows["mean"] >= worst]
    ends = [
        kept[name] + sign * kept[name.replace("mean", "std")].fillna(0)
        for name in _STYLES
        for sign in (-1, 1)
    ]
    values = pd.concat(ends).dropna()
    margin = 0.08 * max(values.max() - values.min(), 1e-9)
    return float(values.min() - margin), float(values.max() + margin)
