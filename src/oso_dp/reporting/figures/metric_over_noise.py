"""The metric over the noise multiplier, independent of the budget."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.analysis.noise_tables import metric_against_noise, noise_multipliers, shown_epochs
from oso_dp.analysis.result_set import ResultSet
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_logarithmic
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 70


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    noise = noise_multipliers(study)
    for dataset in labels.sort_datasets(set(noise["dataset"]) - {*study.shared_budgets}):
        yield noise_plan(study, dataset)


def noise_plan(study: ResultSet, dataset: str) -> FigureSpec:
    """The best value of each grid of the paper's methods over the noise of its runs.

    One data set; the paper's values beside ours. The numbers beside the picture hold every method:
    drawn, those that search alike would cover each other.
    """
    cells = metric_against_noise(study, dataset)
    # Search accountings are separate: under random stopping a grid has less noise.
    drawn = cells[cells["method"].isin(PAPER_METHODS) & (cells["search_accounting"] == COMPOSITION)]
    metric = cells["metric"].dropna().iloc[0] if cells["metric"].notna().any() else ""
    short = labels.dataset_short(dataset)
    length, *others = shown_epochs(study, dataset)
    paper = (
        " Hollow markers are the paper's values, at the noise that its budgets buy by our "
        "accounting: the paper does not print its noise."
    )
    return FigureSpec(
        f"metric_over_noise_{dataset}",
        dataset,
        None,
        "noise",
        f"{short}: each grid's best value over the noise multiplier of its runs, for every k and "
        "ε of the paper's methods, searches that pay for all their runs. Read from top to bottom, "
        "at one ν, methods differ by what they make of the noise; lines join a method's values, in "
        "the order of the noise. What is left of a difference at equal ε is the price of the grid."
        + (f" Runs of {length:g} epochs alone." if others else "")
        + (paper if (cells["source"] == "paper").any() else ""),
        lambda: draw_against_noise(
            drawn, metric, f"{short}: the metric over the noise", study.methods
        ),
        data=cells,
    )


def draw_against_noise(
    cells: pd.DataFrame, metric: str, title: str, methods: list[str]
) -> Figure | None:
    """Every grid's best value over the noise of its runs, one colour per method.

    cells: columns method, noise_multiplier, mean, std and source (ours or paper), in the printed
    unit. None unless there are values of ours. methods: all of the report, for colours.
    """
    cells = cells.dropna(subset=["noise_multiplier", "mean"])
    if not (cells["source"] == "ours").any():
        return None
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 4.4)
    colour, marker = styles.colours(methods), styles.markers(methods)
    ordered = labels.sort_methods(cells["method"].unique())
    for method in ordered:
        for source, style in _STYLES.items():
            rows = cells[(cells["method"] == method) & (cells["source"] == source)]
            rows = rows.sort_values("noise_multiplier")
            if len(rows):
                axes.errorbar(
                    rows["noise_multiplier"],
                    rows["mean"],
                    yerr=rows["std"] if rows["std"].notna().any() else None,
                    color=colour[method],
                    marker=marker[method],
                    capsize=2,
                    **style,
                )
    handles = [layout.legend_handle(method, methods, linestyle="") for method in ordered]
    if (cells["source"] == "paper").any():
        grey: dict[str, Any] = {"color": "#555555", "marker": "o"}
        handles.append(Line2D([], [], label="ours", linestyle="", **grey))
        handles.append(Line2D([], [], label="paper", linestyle="", mfc="white", **grey))
    axes.set_xscale("log")
    layout.plain_ticks(axes.xaxis)
    if is_logarithmic(metric):
        layout.log_axis(axes)
    axes.set_xlabel("noise multiplier ν of each run")
    axes.set_ylabel(labels.metric_label(metric))
    layout.add_legend(figure, handles)
    return figure


_STYLES: dict[str, dict[str, Any]] = {
    "paper": {"linestyle": "", "mfc": "white", "elinewidth": 0.8, "markersize": 4.5, "zorder": 2},
    "ours": {"linestyle": "-", "linewidth": 1.0, "elinewidth": 1.0, "zorder": 3},
}
