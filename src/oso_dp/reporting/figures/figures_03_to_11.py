"""Figures 3 to 11: the metric over epsilon, a line per method, ours beside the paper's.

k = 7: Figure 3 (MNIST), Figure 4 (Fashion-MNIST), Figure 5 (AG News). k = 9: Figure 6 (MNIST),
Figure 7 (Fashion-MNIST), Figure 8 (AG News). k = 5: Figure 9, Figure 10, Figure 11.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.cells import list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_higher_better, is_logarithmic
from oso_dp.paper.tables import DATASETS, find_table, paper_tables
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.captions import incomplete_note
from oso_dp.reporting.figures.dot_plot import draw_dots
from oso_dp.reporting.figures.figure_spec import FigureSpec
from oso_dp.reporting.tables.cells import variant_note

ORDER = 20


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    """One figure per data set and k that was run; for the paper's others, only its values."""
    ran = list_panels(study)
    for dataset, k in ran:
        yield metric_plan(study, dataset, k, measured=True)
    if set(study.datasets) & set(DATASETS):
        for table in paper_tables():
            if (table.dataset, table.k) not in ran:
                yield metric_plan(study, table.dataset, table.k, measured=False)


def metric_plan(study: ResultSet, dataset: str, k: int, measured: bool) -> FigureSpec:
    table = find_table(dataset, k)
    cells = judge_cells(study, dataset, k)
    better = "Higher" if is_higher_better(cells["metric"].iloc[0]) else "Lower"
    cells = cells[cells["method"].isin(PAPER_METHODS)]
    short = labels.dataset_short(dataset)
    name = f"figure_{table.figure:02d}" if table else f"metric_over_epsilon_{dataset}_k{k}"
    title = (
        f"{short}, k = {k}" if measured else f"{short}, k = {k}: the paper's values, none of ours"
    )
    caption = (
        f"{short}, k = {k}: best on test over the budget of the {study.budgeted_runs(dataset)}. "
        f"{better} is better. "
    )
    if dataset in DATASETS and (note := labels.format_epochs_note(cells["epochs"])):
        caption += f"{note} "
    ran = cells.loc[cells["status"] == "run", "method"]
    seeds = cells.loc[ran.index, "seeds"]
    if measured and (seeds > 1).any():
        caption += "Filled markers are ours, with the standard deviation over seeds. "
    elif measured:
        caption += "Filled markers are ours, from one seed, so without error bars. "
    if table and cells["paper_mean"].notna().any():
        caption += (
            f"Hollow markers with dashed lines are the paper's (Table {table.number}, five seeds)."
        )
    elif table:
        caption += "The paper plots this figure but prints no values for it."
    for note in filter(None, (incomplete_note(cells), variant_note(cells)) if measured else ()):
        caption = f"{caption.strip()} {note}"
    return FigureSpec(
        name,
        dataset,
        k,
        "metric",
        caption.strip(),
        # Without a figure in the paper, at least two methods are needed.
        lambda: draw_metric(cells, title, study.methods) if table or ran.nunique() > 1 else None,
        measured,
    )


DODGE = 0.085  # horizontal offset between methods, so that error bars do not overlap


def draw_metric(cells: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """Plot the judged cells of one data set at one k (`judge_cells`).

    Ours filled with solid lines and the standard deviation over seeds; the paper's hollow with
    dashed lines. At a single epsilon there is no line to draw: the methods stand below each other.
    None where there is no value at all. methods: all of the report, for colours.
    """
    private = cells.dropna(subset="epsilon") if len(cells) else cells
    valued = private[private["mean"].notna() | private["paper_mean"].notna()]
    reference = cells[cells["epsilon"].isna() & cells["mean"].notna()]
    if valued.empty and reference.empty:
        return None
    if valued["epsilon"].nunique() == 1 and private["epsilon"].nunique() == 1:
        return _at_one_epsilon(cells, title, methods)
    # Each epsilon of the design has a position, whether or not it was run.
    places = {e: i for i, e in enumerate(sorted(private["epsilon"].unique()))}
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 4.3)
    colour, marker = styles.colours(methods), styles.markers(methods)
    ordered = labels.sort_methods(valued["method"].unique())
    handles = []
    dodge = min(DODGE, 0.7 / max(1, len(ordered)))
    for i, method in enumerate(ordered):
        rows = private[private["method"] == method]
        x = rows["epsilon"].map(places) + dodge * (i - (len(ordered) - 1) / 2)
        line_style = {"color": colour[method], "marker": marker[method], "capsize": 2.5}
        _line(axes, x, rows["paper_mean"], rows["paper_std"], line_style, paper=True)
        _line(axes, x, rows["mean"], rows["std"], line_style, paper=False)
        handles.append(layout.legend_handle(method, methods, linestyle="-"))
    for row in reference.itertuples():
        axes.axhline(row.mean, color=colour[row.method], linestyle=(0, (1, 1.5)))
        handles.append(
            Line2D([], [], color=colour[row.method], linestyle=(0, (1, 1.5)), label="NoDP, ours")
        )
    if valued["mean"].notna().any() and valued["paper_mean"].notna().any():
        grey: dict[str, Any] = {"color": "#555555", "marker": "o"}
        handles.append(Line2D([], [], label="ours", **grey))
        handles.append(Line2D([], [], label="paper", linestyle="--", mfc="white", **grey))
    if is_logarithmic(cells["metric"].iloc[0]):
        layout.log_axis(axes)
    axes.margins(y=0.08)
    axes.set_xticks(list(places.values()), [f"{e:g}" for e in places])
    if places:
        axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel("ε of the complete grid")
    axes.set_ylabel(labels.metric_label(cells["metric"].iloc[0]))
    layout.add_legend(figure, handles)
    return figure


def _at_one_epsilon(cells: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """Cells of one budget, and NoDP's, as a dot plot."""
    epsilon = cells["epsilon"].dropna().iloc[0]
    measured = cells[["method", "mean", "std"]].assign(source="ours")
    printed = cells[["method"]].assign(
        mean=cells["paper_mean"], std=cells["paper_std"], source="paper"
    )
    values = pd.concat([frame for frame in (measured, printed) if frame["mean"].notna().any()])
    metric = cells["metric"].iloc[0]
    return draw_dots(values, metric, f"{title}, ε = {labels.format_budget(epsilon)}", methods)


def _line(
    axes: Axes,
    x: pd.Series,
    mean: pd.Series,
    std: pd.Series,
    line_style: dict[str, Any],
    paper: bool,
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
    # A single seed has no standard deviation: draw no bar rather than one of length zero.
    error = std[known] if std[known].notna().any() else None
    axes.errorbar(x[known] + shift, mean[known], yerr=error, **line_style, **style)
