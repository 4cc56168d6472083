"""Noise of a search: by grid size, over the number of runs, and the metric over the noise."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.analysis.noise_tables import metric_against_noise, noise_multipliers, shown_epochs
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.search_costs import RULES, grids_at_largest_k, search_costs, select_rule
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_logarithmic
from oso_dp.paper.tables import DATASETS, find_table
from oso_dp.reporting.figures.chart import (
    OURS_AND_PAPER,
    Axis,
    Chart,
    Facet,
    FigureSpec,
    Line,
    method_series,
)

ORDER = 60


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """Three for each data set; data sets with one budget for all runs have no grids to compare."""
    noise = noise_multipliers(study)
    datasets = labels.sort_datasets(set(noise["dataset"]) - {*study.shared_budgets})
    for dataset in datasets:
        yield noise_figure(noise[noise["dataset"] == dataset], dataset)
    for dataset in datasets:
        yield metric_over_noise_figure(study, dataset)
    costs = search_costs(study)
    for dataset in costs["dataset"].unique():
        yield _cost_figure(study, dataset, costs[costs["dataset"] == dataset])


def noise_figure(noise: pd.DataFrame, dataset: str) -> FigureSpec:
    """The paper's methods, on its data sets at its k; the table has the others."""
    noise = noise[noise["method"].isin(PAPER_METHODS)]
    if dataset in DATASETS:
        noise = noise[[find_table(dataset, k) is not None for k in noise["k"]]]
    short = labels.dataset_short(dataset)
    caption = (
        f"{short}: the noise multiplier of each run when the budget covers the complete grid. The "
        "number above a bar is N, the number of runs in the grid: a method with one "
        "hyperparameter less trains with less noise."
    )
    title = f"{short}: noise multiplier of each run, N above the bar"
    chart = noise_chart(noise, title, labels.sort_methods(noise["method"]))
    return FigureSpec(f"noise_multipliers_{dataset}", dataset, None, "noise", caption, chart.draw)


def noise_chart(noise: pd.DataFrame, title: str, methods: list[str]) -> Chart:
    """Bars over epsilon per method, a panel per k, N above each bar.

    noise: rows of one data set as in the table `noise_multipliers`.
    """
    series = method_series(noise["method"].unique(), methods, label=False)
    return Chart(
        noise,
        title,
        Axis("epsilon", "ε of the complete grid"),
        Axis("noise_multiplier", "noise multiplier ν"),
        series,
        columns=Facet("k", lambda k: f"k = {k}"),
        abreast=3,
        mark=_draw_bars,
        legend=[
            Patch(color=look["color"], label=labels.method_label(name))
            for name, look in series.items()
        ],
    )


def _draw_bars(chart: Chart, axes: Axes, rows: pd.DataFrame) -> None:
    epsilons = sorted(rows["epsilon"].unique())  # Fashion-MNIST's differ from k to k
    names = {"xlabel": axes.get_xlabel(), "ylabel": axes.get_ylabel()}  # seaborn sets others
    seaborn.barplot(
        rows,
        x="epsilon",
        y="noise_multiplier",
        order=epsilons,
        hue="method",
        hue_order=list(chart.series),
        palette={name: look["color"] for name, look in chart.series.items()},
        saturation=1,
        width=0.8,
        gap=0.08,
        errorbar=None,
        legend=False,
        ax=axes,
    )
    axes.set(**names)
    sizes = rows.set_index(["method", "epsilon"])["grid_size"]
    for method, bars in zip(chart.series, axes.containers, strict=True):
        middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        texts = [f"{sizes[method, epsilons[round(middle)]]}" for middle in middles]
        axes.bar_label(bars, texts, padding=1.5, fontsize=6.5)  # type: ignore[arg-type]
    axes.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
    axes.set_xlim(-0.6, len(epsilons) - 0.4)
    axes.margins(y=0.12)
    axes.grid(axis="x", visible=False)


def metric_over_noise_figure(study: ResultSet, dataset: str) -> FigureSpec:
    """The best value of each grid of the paper's methods over the noise of its runs.

    The CSV has every method: drawn, those that search alike would cover each other.
    """
    cells = metric_against_noise(study, dataset)
    # Search accountings are separate: under random stopping a grid has less noise.
    drawn = cells[cells["method"].isin(PAPER_METHODS) & (cells["search_accounting"] == COMPOSITION)]
    metric = cells["metric"].dropna().iloc[0] if cells["metric"].notna().any() else ""
    short = labels.dataset_short(dataset)
    length, *others = shown_epochs(study, dataset)
    caption = (
        f"{short}: each grid's best value over the noise multiplier of its runs, for every k and ε "
        "of the paper's methods, searches that pay for all their runs. At one ν, methods differ by "
        "what they make of the noise, and by which and how many points of their grids ran; lines "
        "join a method's values, in the order of the noise."
    )
    if others:
        caption += f" Runs of {length:g} epochs alone."
    if (cells["source"] == "paper").any():
        caption += (
            " Hollow markers are the paper's values, at the noise that its budgets allow by our "
            "accounting: the paper does not print its noise."
        )
    chart = metric_over_noise_chart(drawn, metric, f"{short}: metric over noise", study.methods)
    name = f"metric_over_noise_{dataset}"
    return FigureSpec(name, dataset, None, "noise", caption, chart.draw, data=cells)


def metric_over_noise_chart(
    cells: pd.DataFrame, metric: str, title: str, methods: list[str]
) -> Chart:
    """Every grid's best value over the noise of its runs, one colour per method.

    cells: columns method, noise_multiplier, mean, std and source (ours or paper), in the printed
    unit; without rows unless there are values of ours. methods: all of the report, for colours.
    """
    cells = cells.dropna(subset=["noise_multiplier", "mean"])
    cells = cells if (cells["source"] == "ours").any() else cells.iloc[:0]
    paper = {**OURS_AND_PAPER["paper"], "linestyle": "", "markersize": 4.5}
    return Chart(
        cells,
        title,
        Axis("noise_multiplier", "noise multiplier ν of each run", "log"),
        Axis("mean", labels.metric_label(metric), "log" if is_logarithmic(metric) else "linear"),
        method_series(cells["method"].unique(), methods, linewidth=1.0),
        styles={"ours": OURS_AND_PAPER["ours"], "paper": paper},
        style="source",
        error="std",
    )


def _cost_figure(study: ResultSet, dataset: str, costs: pd.DataFrame) -> FigureSpec:
    grids = grids_at_largest_k(study, dataset)
    epsilon, delta = costs["epsilon"].iloc[0], costs["delta"].iloc[0]
    where = f"{labels.dataset_short(dataset)}, ε = {epsilon:g} for the whole search"
    caption = (
        f"{where}, δ = {labels.format_delta(delta)}: the noise multiplier of each run against the "
        "number of runs N. Dotted lines mark the methods' grids at the study's largest k. "
        f"{_compare_grids(costs, grids)}"
    )
    draw = cost_chart(costs, grids, where).draw
    return FigureSpec(f"search_cost_{dataset}", dataset, None, "search_cost", caption.strip(), draw)


def _compare_grids(costs: pd.DataFrame, grids: dict[int, list[str]]) -> str:
    """A sentence on the largest grid's noise relative to Online's, for each rule."""
    online = next((n for n, methods in grids.items() if "online" in methods), None)
    if online is None or online == max(grids):
        return ""
    most = max(grids)
    parts = []
    for rule in RULES:
        line = select_rule(costs, rule)
        ratio = line.get(most, float("nan")) / line.get(online, float("nan"))
        if not labels.is_missing(ratio):
            parts.append(f"{ratio:.2f} ({rule.label})")
    if not parts:
        return ""
    names = " and ".join(map(labels.method_label, grids[most]))
    return (
        f"From Online's grid of {online} to the grid of {most} ({names}), the noise grows by a "
        f"factor of {', '.join(parts)}."
    )


# Not the methods' colours: black for composition, others for random stopping.
_RULE_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "marker": "o", "markersize": 4.5},
    {"color": "#000000", "marker": "o", "markersize": 4.5, "linestyle": "--", "mfc": "white"},
    {"color": "#8C6D31", "marker": "v"},
    {"color": "#E69F00", "marker": "s", "markersize": 4.5},
    {"color": "#56B4E9", "marker": "D", "markersize": 4.5},
)
_MAX_NAMES = 2  # of the methods with grids of one size
_MIN_TICK_DISTANCE = 0.1  # decades, so that tick labels do not overlap


def cost_chart(costs: pd.DataFrame, grids: dict[int, list[str]], title: str) -> Chart:
    """The rows of one data set of `search_costs.search_costs`, a line per rule.

    grids: number of runs -> methods, marked above the axes.
    """
    known = costs.dropna(subset="noise_multiplier")
    lines = [select_rule(known, rule).reset_index().assign(rule=rule.label) for rule in RULES]

    def name_grids(axes: Axes, _: pd.DataFrame) -> None:
        above = axes.secondary_xaxis("top")
        # Every second name is one line up, so that they do not overlap.
        names = [_few(grids[n]) + "\n" * (place % 2) for place, n in enumerate(grids)]
        above.set_xticks(list(grids), names)
        above.xaxis.set_minor_locator(NullLocator())
        above.tick_params(length=0, labelsize=8, pad=2)
        for name in above.get_xticklabels()[-1:]:  # at the edge it would be cut off
            name.set_horizontalalignment("right" if len(grids) > 1 else "center")

    ticks = space_labels(known["runs"].unique(), first=grids)
    grey = {"color": "#9A9A9A", "linestyle": ":", "linewidth": 1.2, "zorder": 1}
    return Chart(
        pd.concat(lines),
        title,
        Axis(
            "runs",
            "runs N of the search (under random stopping: on average)",
            "log",
            limits=(0.85, 1.5 * known["runs"].max()),
            ticks=ticks,
        ),
        Axis("noise_multiplier", "noise multiplier ν of each run", "log"),
        {r.label: {"label": r.label, **look} for r, look in zip(RULES, _RULE_LOOKS, strict=True)},
        hue="rule",
        lines=[Line(n, grey, vertical=True) for n in grids] if len(known) else (),
        decorate=name_grids,
    )


def space_labels(values: Iterable[int], first: Iterable[int]) -> list[int]:
    """Select values that fit on a logarithmic axis, preferring those of `first`."""
    kept: list[int] = []
    for value in (*first, *sorted(set(values) - set(first))):
        if all(abs(math.log10(value / other)) >= _MIN_TICK_DISTANCE for other in kept):
            kept.append(value)
    return sorted(kept)


def _few(methods: list[str]) -> str:
    """As many names as fit; the table `search_cost` has all."""
    names = [labels.method_label(method) for method in methods]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES + 1 else ""
    return ", ".join(names[:_MAX_NAMES] if more else names) + more
