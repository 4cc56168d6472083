"""The noise multiplier over the number of runs, a line for each way to price a search."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from oso_dp.reporting import canvas, labels
from oso_dp.reporting.prices import RULES, of_rule

# No method's colours: black composes, the others stop at random.
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "marker": "o", "markersize": 4.5},
    {"color": "#000000", "marker": "o", "markersize": 4.5, "linestyle": "--", "mfc": "white"},
    {"color": "#8C6D31", "marker": "v"},
    {"color": "#E69F00", "marker": "s", "markersize": 4.5},
    {"color": "#56B4E9", "marker": "D", "markersize": 4.5},
)
_APART = 0.1  # decades between two ticks, or their labels meet


def draw_prices(prices: pd.DataFrame, marks: dict[int, list[str]], title: str) -> Figure | None:
    """Plot the rows of one data set of `prices.search_prices`.

    marks: where to say which methods' grids have that number of runs. None without prices.
    """
    priced = prices.dropna(subset="noise_multiplier")
    if priced.empty:
        return None
    figure, (axes,) = canvas.panels(1, title)
    figure.set_size_inches(6.8, 4.6)
    handles = []
    for rule, look in zip(RULES, _LOOKS, strict=True):
        line = of_rule(priced, rule)
        if len(line):
            handles += axes.plot(line.index, line, label=rule.label, **look)
    axes.set_xscale("log")
    axes.set_xlim(0.85, priced["runs"].max() * 1.5)
    ticks = spaced(priced["runs"].unique(), first=marks)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    canvas.log_axis(axes)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(marks), _staggered(marks))
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(length=0, labelsize=8, pad=2)
    for n in marks:
        axes.axvline(n, color="#9A9A9A", linestyle=":", linewidth=1.2, zorder=1)
    axes.set_xlabel("runs N of the search (under random stopping: on average)")
    axes.set_ylabel("noise multiplier ν of each run")
    canvas.legend(figure, handles)
    return figure


def spaced(values: Iterable[int], first: Iterable[int]) -> list[int]:
    """As many of the values as fit on a logarithmic axis, those of `first` before the others."""
    kept: list[int] = []
    for value in (*first, *sorted(set(values) - set(first))):
        if all(abs(math.log10(value / other)) >= _APART for other in kept):
            kept.append(value)
    return sorted(kept)


def _staggered(marks: dict[int, list[str]]) -> list[str]:
    """Names side by side would meet, so every second one stands a line higher."""
    names = [", ".join(map(labels.method_label, marks[n])) for n in marks]
    return [name + "\n" * (i % 2) for i, name in enumerate(names)]
