"""Dot plot of methods at one budget, one row per method."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.reporting.figures import layout, styles

_FILLS = (None, "white", "#BBBBBB", "black")


def draw_dots(values: pd.DataFrame, metric: str, title: str, methods: list[str]) -> Figure | None:
    """A dot with its standard deviation for each value, methods below each other in their order.

    values: columns method, mean, std (printed unit; NaN for one seed) and source, which says what a
    marker's filling means: the first source's is its colour, then come white, grey and black.
    methods: all of the report, for colours. None without values.
    """
    known = values.dropna(subset="mean")
    if known.empty:
        return None
    ordered = labels.sort_methods(known["method"].unique())
    sources = list(dict.fromkeys(known["source"]))
    figure, (axes,) = layout.make_panels(1, title)
    figure.set_size_inches(6.8, 1.5 + 0.3 * len(ordered))
    colour, marker = styles.colours(methods), styles.markers(methods)
    for row in known.itertuples():
        place = sources.index(row.source)
        axes.errorbar(
            row.mean,
            ordered.index(row.method) + 0.22 * (place - (len(sources) - 1) / 2),
            xerr=None if pd.isna(row.std) else row.std,
            color=colour[row.method],
            marker=marker[row.method],
            mfc=_FILLS[place % len(_FILLS)],
            linestyle="",
            capsize=2.5,
        )
    axes.set_yticks(range(len(ordered)), [labels.method_label(method) for method in ordered])
    axes.set_ylim(len(ordered) - 0.4, -0.6)  # the first on top
    axes.set_xlabel(labels.metric_label(metric))
    axes.margins(x=0.08)
    if len(sources) > 1:
        grey: dict[str, Any] = {"color": "#555555", "marker": "o", "linestyle": ""}
        handles = [
            Line2D([], [], label=source, mfc=_FILLS[place % len(_FILLS)], **grey)
            for place, source in enumerate(sources)
        ]
        layout.add_legend(figure, handles)
    return figure
