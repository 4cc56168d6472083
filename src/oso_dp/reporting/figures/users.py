"""Studies that protect users: accuracy over the fixed threshold, and by who wrote the digits."""

from collections.abc import Iterator

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import main_variants
from oso_dp.reporting.figures.chart import (
    BY_EPSILON,
    Axis,
    Chart,
    Facet,
    FigureSpec,
    Line,
    colours,
    method_series,
)
from oso_dp.reporting.figures.metric_over_epsilon import budget_axis, line_chart, no_dp_line

ORDER = 57
_SWEPT = "fixed_threshold"  # over C; the others do not search C, FixedQuantile at the median
_OTHERS = {
    "fixed_quantile": {"label": "FixedQuantile, γ = 0.5", "linestyle": "--"},
    "online": {"label": "Online", "linestyle": "-."},
    "auto_s": {"label": "AUTO-S", "linestyle": ":"},
}
_MIN_THRESHOLDS = 3


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """None without runs that protect users."""
    users = study.points[study.points["unit"] == "user"]
    for (dataset, model), points in users.groupby(["dataset", "model"], sort=False):
        where = f"{labels.dataset_short(dataset)}, {model}"
        chart = threshold_chart(main_variants(points), f"{where}: accuracy over C", study.methods)
        if chart is None:
            continue
        caption = (
            f"{where}: FixedThreshold's accuracy over C, at the best learning rate of each C, with "
            "standard deviations over seeds. Horizontal: the best accuracy of methods that do not "
            "search C. Each method's noise is that of its own grid under one budget."
        )
        name = f"accuracy_over_threshold_{dataset}_{model}"
        yield FigureSpec(name, dataset, None, "updates", caption, chart.draw)
    for (dataset, model), rows in series_of_best(study).groupby(["dataset", "model"], sort=False):
        where = f"{labels.dataset_short(dataset)}, {model}"
        title = f"{where}: accuracy by who wrote the test digits"
        caption = (
            f"{where}: accuracy after the last step on the 5,001 test digits of students and the "
            "4,999 of employees, at each method's best grid point. Bars are standard deviations "
            "over seeds."
        )
        name = f"writer_series_{dataset}_{model}"
        chart = series_chart(rows, title, study.methods)
        yield FigureSpec(name, dataset, None, "updates", caption, chart.draw)


def threshold_chart(points: pd.DataFrame, title: str, methods: list[str]) -> Chart | None:
    """A panel for each epsilon; None without a grid of C. points: of one data set and model."""
    points = points.assign(mean=100 * points["mean"], std=100 * points["std"])
    swept = points[points["method"] == _SWEPT].sort_values("mean")
    swept = swept.drop_duplicates(["epsilon", "threshold"], keep="last")
    if swept["threshold"].nunique() < _MIN_THRESHOLDS:
        return None
    others = points[points["method"].isin(_OTHERS) & ~points["quantile"].gt(0.5)]
    others = others[~others["quantile"].lt(0.5)]  # without a quantile, or at 0.5
    best = others.groupby(["method", "epsilon"], sort=False)["mean"].max()
    colour = colours(methods)
    lines = [
        Line(
            mean,
            {"color": colour[method], **_OTHERS[method]},
            {"epsilon": epsilon},
        )
        for (method, epsilon), mean in best.items()
    ]
    return Chart(
        swept,
        title,
        Axis("threshold", "clipping threshold C", "log"),
        Axis("mean", "accuracy (%)"),
        method_series([_SWEPT], methods),
        error="std",
        columns=BY_EPSILON,
        lines=lines,
    )


def series_of_best(study: ResultSet) -> pd.DataFrame:
    """Of models whose best points were all measured; not of points that were the best before."""
    best, rows = study.best_runs, study.writer_series
    if rows.empty:
        return rows
    is_measured = best["run_id"].isin(rows["run_id"])
    is_whole = is_measured.groupby([best["dataset"], best["model"]]).transform("all")
    return rows[rows["run_id"].isin(best.loc[is_whole, "run_id"])]


def series_chart(rows: pd.DataFrame, title: str, methods: list[str]) -> Chart:
    """A panel for each series of writers, with the accuracy without privacy."""
    values = mean_by_series(rows)
    private = values.dropna(subset=["epsilon"])
    return line_chart(
        private,
        "accuracy",
        title,
        methods,
        budget_axis(sorted(private["epsilon"].unique()), "ε of the complete grid"),
        [
            no_dp_line(row["mean"], methods, "NoDP", {"series": row["series"]})
            for row in values[values["epsilon"].isna()].to_dict("records")
        ],
        Facet("series"),
    )


def mean_by_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over seeds (in %), by method, epsilon and series."""
    keys = ["method", "epsilon", "series"]
    grouped = rows.groupby(keys, sort=False, dropna=False)["accuracy"]
    return (100 * grouped.agg(["mean", "std"])).reset_index()
