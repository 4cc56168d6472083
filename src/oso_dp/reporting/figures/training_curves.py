"""Training curves of the best runs: C_t, rho_t and the test metric over the steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.cells import average_over_seeds, have_paper_length, trajectories
from oso_dp.analysis.result_set import ResultSet
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_logarithmic
from oso_dp.reporting.figures.chart import (
    Axis,
    Chart,
    Facet,
    FigureSpec,
    Line,
    colours,
    method_series,
)

ORDER = 50
# column of `evaluations` -> (axis label, methods whose constant value gets a thin line)
_ADAPTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "threshold": ("clipping threshold Cₜ", ("fixed_threshold", "adam_wosm")),
    "learning_rate": ("learning rate ρₜ", ()),
}
_CROSS: dict[str, Any] = {"marker": "X", "markersize": 7, "markeredgecolor": "black"}


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """Three for each data set: a row of panels per k, a panel per epsilon.

    Runs that are shorter than the paper's are left out.
    """
    best = study.best_runs
    best = best[best["method"].isin(PAPER_METHODS) & have_paper_length(best)]
    steps = trajectories(best, study.evaluations)
    steps = steps.merge(best[["run_id", "k"]].drop_duplicates("run_id"), on="run_id")
    for dataset in labels.sort_datasets(best["dataset"].unique()):
        runs = best[best["dataset"] == dataset]
        here = steps[steps["run_id"].isin(runs["run_id"])]
        where = labels.dataset_short(dataset)
        band = " Bands span the seeds." if runs["seed"].nunique() > 1 else ""
        texts = {
            "learning_curves": "the test metric during training, for each method's best grid point",
            "threshold": "the clipping threshold of the methods that adapt it, starting at their "
            "C₀. Dotted lines are the constants that the other methods' grids chose",
            "learning_rate": "the learning rate of the methods that adapt it, starting at the "
            "grid's best value",
        }
        for name, text in texts.items():
            title = f"{where}: {name.replace('_', ' ')} of the best runs"
            if name in _ADAPTED:
                chart = adapted_chart(here, name, title, study.methods)
            else:
                chart = curves_chart(here, runs["metric"].iloc[0], title, study.methods)
            yield FigureSpec(
                f"{name}_{dataset}", dataset, None, "training", f"{where}: {text}.{band}",
                chart.draw,
            )  # fmt: skip


def adapted_chart(steps: pd.DataFrame, column: str, title: str, methods: list[str]) -> Chart:
    """`threshold` or `learning_rate` over steps.

    Methods that adapt the value have solid lines, constant values thin dotted ones; without rows if
    no method adapts it.
    """
    label, constants = _ADAPTED[column]
    rows = steps[np.isfinite(steps[column]) & (steps[column] > 0)].dropna(subset="epsilon")
    moves = rows.groupby("run_id")[column].nunique().gt(1)
    adapting = set(rows.loc[rows["run_id"].map(moves).astype(bool), "method"])
    rows = _with_panels(rows[rows["method"].isin(adapting | set(constants))])
    drawn = rows[rows["method"].isin(adapting)]
    colour = colours(methods)
    fixed = rows[~rows["method"].isin(adapting)].drop_duplicates(["method", *_FACETS, column])
    fixed = fixed.merge(drawn[_FACETS].drop_duplicates())  # in the panels that there are
    lines = [
        Line(
            row[column],
            {"color": colour[row["method"]], "linestyle": ":", "linewidth": 1.3,
             "label": f"{labels.method_label(row['method'])} (constant)"},
            {name: row[name] for name in _FACETS},
        )
        for row in fixed.to_dict("records")
    ]  # fmt: skip
    series = method_series(adapting, methods, marker="")
    axis = Axis("mean", label, "log")
    return _chart(drawn, column, title, axis, series, lines if len(drawn) else ())


def curves_chart(steps: pd.DataFrame, metric: str, title: str, methods: list[str]) -> Chart:
    """The test metric over steps, in the printed unit; NoDP in each panel.

    Without rows if no run was evaluated twice.
    """
    rows = steps[np.isfinite(steps["value"])]
    rows = rows.assign(value=rows["value"] * labels.display_factor(metric))
    if not rows.groupby("run_id")["step"].nunique().gt(1).any():
        rows = rows.iloc[:0]
    rows = _with_panels(rows)
    private = rows[rows["epsilon"].notna()]
    panels = private[_FACETS].drop_duplicates()
    free = rows[rows["epsilon"].isna()]
    beside = free.drop(columns="panel").merge(panels, on="k", how="left")
    series = method_series(rows["method"].unique(), methods, marker="")
    for method in free["method"].unique():
        series[method]["linestyle"] = "--"
    label = labels.metric_label(metric)
    axis = Axis("mean", label, "log" if is_logarithmic(metric) else "linear")
    drawn = pd.concat([private, beside.fillna({"panel": ""})])
    return _chart(drawn, "value", title, axis, series)


_FACETS = ["k", "panel"]


def _with_panels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows by k and epsilon, with the title of their panel."""
    rows = rows if "k" in rows else rows.assign(k=0)
    rows = rows.sort_values("epsilon", kind="stable")  # the order of the panels
    return rows.assign(panel=[f"ε = {e:g}" if e == e else "" for e in rows["epsilon"]])


def _chart(
    rows: pd.DataFrame,
    column: str,
    title: str,
    y: Axis,
    series: Mapping[str, Mapping[str, Any]],
    lines: Sequence[Line] = (),
) -> Chart:
    """Mean over seeds, the band from the lowest to the highest; a cross where a run diverged."""
    means = [
        average_over_seeds(here, column).assign(k=k, panel=panel)
        for (k, panel), here in rows.groupby(_FACETS, sort=False)
    ]
    columns = ["method", "step", "mean", "min", "max", *_FACETS]
    ends = rows[rows["status"] == "diverged"]
    ends = ends.drop_duplicates(["run_id", *_FACETS], keep="last")

    def mark_diverged(axes: Axes, here: pd.DataFrame) -> None:
        for end in ends.merge(here[_FACETS].drop_duplicates()).to_dict("records"):
            colour = series[end["method"]]["color"]
            axes.plot(end["step"], end[column], color=colour, zorder=5, **_CROSS)

    diverged = Line2D([], [], color="#BBBBBB", linestyle="", label="diverged after this", **_CROSS)
    by_k = rows["k"].nunique() > 1
    return Chart(
        pd.concat(means) if means else pd.DataFrame(columns=columns),
        title,
        Axis("step", "step", limits=(0, None)),
        y,
        series,
        band=("min", "max"),
        columns=Facet("panel"),
        rows=Facet("k", lambda k: f"k = {k}") if by_k else None,
        share_x="row" if by_k else True,
        lines=lines,
        legend=[diverged] if len(ends) else [],
        decorate=mark_diverged,
    )
