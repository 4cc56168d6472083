"""The metric over epsilon under both prices of a search: composition and random stopping."""

import pandas as pd
from matplotlib.figure import Figure

from oso_dp.reporting import canvas, labels
from oso_dp.reporting.draw_metric import DODGE

_HEADINGS = {
    "composition": "all N runs are paid for",
    "random_stopping": "random stopping: the best of about N draws",
}


def draw_outcomes(
    outcomes: pd.DataFrame, metric: str, title: str, methods: list[str]
) -> Figure | None:
    """A panel per price, a line per method with its deviation over seeds.

    outcomes: rows of `outcome_table` of one data set at one k. None unless both prices have values.
    methods: all of the report, for colours.
    """
    valued = outcomes.dropna(subset="value")
    if set(valued["selection"]) != set(_HEADINGS):
        return None
    figure, axes = canvas.panels(len(_HEADINGS), title)
    epsilons = sorted(valued["epsilon"].unique())
    colour, marker = labels.colours(methods), labels.markers(methods)
    shown = labels.method_order(valued["method"].unique())
    dodge = min(DODGE, 0.7 / len(shown))
    for panel, (selection, heading) in zip(axes, _HEADINGS.items(), strict=True):
        for i, method in enumerate(shown):
            rows = valued[(valued["method"] == method) & (valued["selection"] == selection)]
            rows = rows.sort_values("epsilon")
            x = rows["epsilon"].map(epsilons.index) + dodge * (i - (len(shown) - 1) / 2)
            panel.errorbar(
                x,
                rows["value"],
                yerr=rows["std"] if rows["std"].notna().any() else None,
                color=colour[method],
                marker=marker[method],
                capsize=2.5,
            )
        panel.set_xticks(range(len(epsilons)), [f"{e:g}" for e in epsilons])
        panel.set_xlim(-0.5, len(epsilons) - 0.5)
        panel.set_title(heading)
        panel.set_xlabel("ε of the whole search")
    if metric == "mse":
        canvas.log_axis(axes[0])
    axes[0].set_ylabel(labels.metric_label(metric))
    canvas.legend(figure, [canvas.handle(m, methods, linestyle="-") for m in shown])
    return figure
