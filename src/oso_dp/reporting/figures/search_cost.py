"""The noise multiplier over the number of runs, one line per search accounting."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.search_costs import RULES, grids_at_largest_k, search_costs, select_rule
from oso_dp.reporting.figures import layout
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 80


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    """One figure per data set."""
    costs = search_costs(study)
    for dataset in costs["dataset"].unique():
        yield _search_plan(study, dataset, costs[costs["dataset"] == dataset])


def _search_plan(study: ResultSet, dataset: str, costs: pd.DataFrame) -> FigureSpec:
    marks = grids_at_largest_k(study, dataset)
    epsilon, delta = costs["epsilon"].iloc[0], costs["delta"].iloc[0]
    where = f"{labels.dataset_short(dataset)}, ε = {epsilon:g} for the whole search"
    caption = (
        f"{where}, δ = {labels.format_delta(delta)}: the noise multiplier of each run against the "
        "number of runs N. Dotted lines mark the methods' grids at the study's largest k. "
        f"{_compared(costs, marks)}"
    )
    return FigureSpec(
        f"search_cost_{dataset}",
        dataset,
        None,
        "search_cost",
        caption.strip(),
        lambda: draw_costs(costs, marks, where),
    )


def _compared(costs: pd.DataFrame, marks: dict[int, list[str]]) -> str:
    """A sentence on the largest grid's noise relative to Online's, for each rule."""
    online = next((n for n, methods in marks.items() if "online" in methods), None)
    if online is None or online == max(marks):
        return ""
    most = max(marks)
    parts = []
    for rule in RULES:
        line = select_rule(costs, rule)
        ratio = line.get(most, float("nan")) / line.get(online, float("nan"))
        if not labels.is_missing(ratio):
            parts.append(f"{ratio:.2f} ({rule.label})")
    if not parts:
        return ""
    names = " and ".join(map(labels.method_label, marks[most]))
    return (
        f"From Online's grid of {online} to the grid of {most} ({names}), the noise grows by a "
        f"factor of {', '.join(parts)}."
    )


# Not the methods' colours: black for composition, others for random stopping.
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "marker": "o", "markersize": 4.5},
    {"color": "#000000", "marker": "o", "markersize": 4.5, "linestyle": "--", "mfc": "white"},
    {"color": "#8C6D31", "marker": "v"},
    {"color": "#E69F00", "marker": "s", "markersize": 4.5},
    {"color": "#56B4E9", "marker": "D", "markersize": 4.5},
)
_NAMED = 2  # methods of one grid's size
_MIN_TICK_DISTANCE = 0.1  # decades, so that tick labels do not overlap


def draw_costs(costs: pd.DataFrame, marks: dict[int, list[str]], title: str) -> Figure | None:
    """Plot the rows of one data set of `search_costs.search_costs`.

    marks: where to say which methods' grids have that number of runs. None without costs.
    """
    known = costs.dropna(subset="noise_multiplier")
    if known.empty:
        return None
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 4.6)
    handles = []
    for rule, line_style in zip(RULES, _LOOKS, strict=True):
        line = select_rule(known, rule)
        if len(line):
            handles += axes.plot(line.index, line, label=rule.label, **line_style)
    axes.set_xscale("log")
    axes.set_xlim(0.85, known["runs"].max() * 1.5)
    ticks = space_labels(known["runs"].unique(), first=marks)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    layout.log_axis(axes)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(marks), _stagger(marks))
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(length=0, labelsize=8, pad=2)
    for name in above.get_xticklabels()[-1:]:  # at the edge it would be cut off
        name.set_horizontalalignment("right" if len(marks) > 1 else "center")
    for n in marks:
        axes.axvline(n, color="#9A9A9A", linestyle=":", linewidth=1.2, zorder=1)
    axes.set_xlabel("runs N of the search (under random stopping: on average)")
    axes.set_ylabel("noise multiplier ν of each run")
    layout.add_legend(figure, handles)
    return figure


def space_labels(values: Iterable[int], first: Iterable[int]) -> list[int]:
    """Select values that fit on a logarithmic axis, preferring those of `first`."""
    kept: list[int] = []
    for value in (*first, *sorted(set(values) - set(first))):
        if all(abs(math.log10(value / other)) >= _MIN_TICK_DISTANCE for other in kept):
            kept.append(value)
    return sorted(kept)


def _stagger(marks: dict[int, list[str]]) -> list[str]:
    """Move every second name one line up, so that they do not overlap."""
    return [_few(marks[n]) + "\n" * (place % 2) for place, n in enumerate(marks)]


def _few(methods: list[str]) -> str:
    """As many names as fit; the table `search_cost` has all."""
    names = [labels.method_label(method) for method in methods]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED + 1 else ""
    return ", ".join(names[:_NAMED] if more else names) + more
