"""Training curves of the best runs: C_t, rho_t and the test metric over the steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.cells import average_over_seeds, list_panels, trajectories
from oso_dp.analysis.result_set import ResultSet
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_logarithmic
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 50


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    steps = trajectories(study.best_runs, study.evaluations)
    for dataset, k in list_panels(study):
        yield from _step_plans(study, steps, dataset, k)


def _step_plans(
    study: ResultSet, steps: pd.DataFrame, dataset: str, k: int
) -> Iterator[FigureSpec]:
    best = study.best_runs
    runs = best[(best["dataset"] == dataset) & (best["k"] == k)]
    runs = runs[runs["method"].isin(PAPER_METHODS)]
    steps = steps[steps["run_id"].isin(runs["run_id"])]
    metric = runs["metric"].iloc[0] if len(runs) else ""
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    band = " Bands span the seeds." if runs["seed"].nunique() > 1 else ""
    yield FigureSpec(
        f"learning_curves_{dataset}_k{k}",
        dataset,
        k,
        "curves",
        f"{where}: the test metric during training, for each method's best grid point.{band}",
        lambda: draw_curves(steps, metric, f"{where}: test metric of the best runs", study.methods),
    )
    yield FigureSpec(
        f"threshold_{dataset}_k{k}",
        dataset,
        k,
        "threshold",
        f"{where}: the clipping threshold of the methods that adapt it, starting at their C₀. "
        f"Dotted lines are the constants that the other methods' grids chose.{band}",
        lambda: draw_adapted(
            steps, "threshold", f"{where}: clipping threshold of the best runs", study.methods
        ),
    )
    yield FigureSpec(
        f"learning_rate_{dataset}_k{k}",
        dataset,
        k,
        "learning_rate",
        f"{where}: the learning rate of the methods that adapt it, starting at the grid's best "
        f"value.{band}",
        lambda: draw_adapted(
            steps, "learning_rate", f"{where}: learning rate of the best runs", study.methods
        ),
    )


# column of `evaluations` -> (axis label, methods whose constant value gets a thin line)
_ADAPTED = {
    "threshold": ("clipping threshold Cₜ", ("fixed_threshold", "adam_wosm")),
    "learning_rate": ("learning rate ρₜ", ()),
}


def draw_adapted(steps: pd.DataFrame, column: str, title: str, methods: list[str]) -> Figure | None:
    """`threshold` or `learning_rate` over steps, a panel per epsilon.

    Methods that adapt the value have solid lines, constant values thin dotted ones. None if no
    method adapts it.
    """
    label, constants = _ADAPTED[column]
    rows = steps[np.isfinite(steps[column]) & (steps[column] > 0)].dropna(subset="epsilon")
    moves = rows.groupby("run_id")[column].nunique().gt(1)
    adapting = labels.sort_methods(rows.loc[rows["run_id"].map(moves), "method"].unique())
    if not adapting:
        return None
    fixed = [m for m in constants if m in set(rows["method"]) and m not in adapting]
    rows = rows[rows["method"].isin(adapting + fixed)]
    epsilons = sorted(rows.loc[rows["method"].isin(adapting), "epsilon"].unique())
    figure, axes = layout.make_panels(len(epsilons), title, sharex=True)
    colour = styles.colours(methods)
    for panel, epsilon in zip(axes, epsilons, strict=True):
        here = rows[rows["epsilon"] == epsilon]
        for method in fixed:
            for value in here.loc[here["method"] == method, column].unique():
                panel.axhline(value, color=colour[method], linestyle=":", linewidth=1.3)
        _curves(panel, here[here["method"].isin(adapting)], column, adapting, colour)
        _finish(panel, epsilon, label)
    axes[0].set_xlim(left=0)  # of all panels, once all are drawn
    _log_axes(axes)
    handles = [layout.legend_handle(m, methods, marker="") for m in adapting]
    handles += [
        layout.legend_handle(
            m, methods, marker="", linestyle=":", label=f"{labels.method_label(m)} (constant)"
        )
        for m in fixed
    ]
    layout.add_legend(figure, handles + _diverged_handle(rows))
    return figure


def draw_curves(steps: pd.DataFrame, metric: str, title: str, methods: list[str]) -> Figure | None:
    """The test metric over steps, in the printed unit, a panel per epsilon; NoDP in each.

    None where no run was evaluated twice.
    """
    rows = steps[np.isfinite(steps["value"])]
    rows = rows.assign(value=rows["value"] * labels.display_factor(metric))
    if not rows.groupby("run_id")["step"].nunique().gt(1).any():
        return None
    free = rows[rows["epsilon"].isna()]
    epsilons = sorted(rows["epsilon"].dropna().unique())
    figure, axes = layout.make_panels(max(1, len(epsilons)), title, sharex=True)
    colour = styles.colours(methods)
    order = labels.sort_methods(rows["method"].unique())
    for panel, epsilon in zip(axes, epsilons or [None], strict=True):
        here = rows[rows["epsilon"] == epsilon]
        _curves(panel, free, "value", order, colour, linestyle="--")
        _curves(panel, here, "value", order, colour)
        _finish(panel, epsilon, labels.metric_label(metric))
    axes[0].set_xlim(left=0)
    if is_logarithmic(metric):
        _log_axes(axes)
    without = set(free["method"])
    handles = [
        layout.legend_handle(m, methods, marker="", linestyle="--" if m in without else "-")
        for m in order
    ]
    layout.add_legend(figure, handles + _diverged_handle(rows))
    return figure


def _log_axes(axes: list[Axes]) -> None:
    """One scale for all panels, once all are drawn: what is set after the first cuts the others."""
    for panel in axes:
        layout.log_axis(panel)


def _curves(
    panel: Axes,
    rows: pd.DataFrame,
    column: str,
    order: list[str],
    colour: dict[str, str],
    **style: Any,
) -> None:
    """Mean over seeds, the band from the lowest to the highest; a cross where a run diverged."""
    present = [m for m in order if m in set(rows["method"])]
    if not present:
        return
    over = average_over_seeds(rows, column)
    for method in present:
        band = over[over["method"] == method]
        panel.fill_between(
            band["step"], band["min"], band["max"], color=colour[method], alpha=0.18, linewidth=0
        )
    seaborn.lineplot(
        over,
        x="step",
        y="mean",
        hue="method",
        hue_order=present,
        palette=colour,
        estimator=None,
        errorbar=None,
        legend=False,
        ax=panel,
        **style,
    )
    ends = rows[rows["status"] == "diverged"].drop_duplicates("run_id", keep="last")
    for end in ends.itertuples():
        panel.plot(
            end.step,
            getattr(end, column),
            marker="X",
            markersize=7,
            color=colour[end.method],
            markeredgecolor="black",
            zorder=5,
        )


def _diverged_handle(rows: pd.DataFrame) -> list[Line2D]:
    if not (rows["status"] == "diverged").any():
        return []
    style: dict[str, Any] = {
        "marker": "X",
        "markersize": 7,
        "linestyle": "",
        "markeredgecolor": "black",
    }
    return [Line2D([], [], color="#BBBBBB", label="diverged after this", **style)]


def _finish(panel: Axes, epsilon: float | None, label: str) -> None:
    panel.set_title("" if epsilon is None else f"ε = {epsilon:g}")
    panel.set_xlabel("step")
    panel.set_ylabel(label)
    panel.label_outer(remove_inner_ticks=False)
