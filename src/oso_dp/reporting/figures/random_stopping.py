"""The metric over epsilon under composition and under random stopping."""

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.tuning_cost import STOPPING_ETA
from oso_dp.analysis.random_stopping import distributions, outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.metrics import is_logarithmic
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.dot_plot import draw_dots
from oso_dp.reporting.figures.figure_spec import FigureSpec
from oso_dp.reporting.figures.figures_03_to_11 import DODGE

ORDER = 110


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    yield from outcome_plans(study)


def outcome_plans(study: ResultSet) -> Iterator[FigureSpec]:
    """One figure for each data set and k that was run under both."""
    data = outcomes(study)
    for (dataset, k), rows in data.groupby(["dataset", "k"], sort=False):
        metric = rows["metric"].iloc[0]
        where = f"{labels.dataset_short(dataset)}, k = {k}"
        yield FigureSpec(
            f"search_outcome_{dataset}_k{k}",
            dataset,
            None,
            "search_cost",
            f"{where}: what comes out of a search under either rule, from runs with the noise "
            "that each one asks for: the best point where all are paid for, the expected best of K "
            f"random points, K {distributions(rows)} with the grid's size as its mean. Bars are "
            "standard deviations over seeds. The paper has composition only.",
            lambda rows=rows, metric=metric, where=where: draw_outcomes(  # type: ignore[misc]
                rows, metric, f"{where}: two rules for a search", study.methods
            ),
        )


_COMPOSED = "all N runs are paid for"
_STOPPED = "random stopping: the best of about N draws"


def draw_outcomes(
    outcomes: pd.DataFrame, metric: str, title: str, methods: list[str]
) -> Figure | None:
    """One panel per accounting and distribution of K, one line per method with standard deviation.

    outcomes: of `random_stopping.outcomes` the rows of one data set at one k. None unless both
    rules have values. methods: all of the report, for colours.
    """
    valued = outcomes.dropna(subset="value")
    if set(valued["search_accounting"]) != {COMPOSITION, RANDOM_STOPPING}:
        return None
    rank = valued["distribution"].map(list(STOPPING_ETA).index, na_action="ignore").fillna(-1)
    valued = valued.assign(source=_headings(valued), rank=rank.astype(float))
    valued = valued.sort_values("rank", kind="stable")  # composition first
    headings = list(dict.fromkeys(valued["source"]))
    if valued["epsilon"].nunique() == 1:
        values = valued.rename(columns={"value": "mean"})
        epsilon = labels.format_budget(values["epsilon"].iloc[0])
        return draw_dots(values, metric, f"{title}, ε = {epsilon}", methods)
    figure, axes = layout.make_panels(len(headings), title)
    epsilons = sorted(valued["epsilon"].unique())
    colour, marker = styles.colours(methods), styles.markers(methods)
    ordered = labels.sort_methods(valued["method"].unique())
    dodge = min(DODGE, 0.7 / len(ordered))
    for panel, heading in zip(axes, headings, strict=True):
        for i, method in enumerate(ordered):
            rows = valued[(valued["method"] == method) & (valued["source"] == heading)]
            rows = rows.sort_values("epsilon")
            x = rows["epsilon"].map(epsilons.index) + dodge * (i - (len(ordered) - 1) / 2)
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
    if is_logarithmic(metric):
        layout.log_axis(axes[0])
    axes[0].set_ylabel(labels.metric_label(metric))
    layout.add_legend(figure, [layout.legend_handle(m, methods, linestyle="-") for m in ordered])
    return figure


def _headings(valued: pd.DataFrame) -> list[str]:
    """The accounting of each row, with the distribution of K if there are several."""
    several = valued["distribution"].nunique() > 1
    return [
        _COMPOSED
        if row["search_accounting"] == COMPOSITION
        else f"random stopping, K {row['distribution']}"
        if several
        else _STOPPED
        for row in valued.to_dict("records")
    ]
