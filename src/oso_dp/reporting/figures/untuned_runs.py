"""The metric of untuned runs over a hyperparameter, beside the best of a search."""

import textwrap
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.untuned_runs import with_alternatives
from oso_dp.analysis.values import POINT
from oso_dp.metrics import is_higher_better
from oso_dp.reporting.figures import layout, styles
from oso_dp.reporting.figures.figure_spec import FigureSpec

ORDER = 105
_MAX_COLUMNS = 8  # methods
_MAX_TITLE_LENGTH = 26  # characters above a panel
_DEPTH = 2.5  # below the searches' best, in units of the range above it, or
_MIN_VALUE = 1.0  # points of accuracy


def plans(study: ResultSet) -> Iterator[FigureSpec]:
    for (dataset, k), rows in with_alternatives(study).groupby(["dataset", "k"], sort=False):
        where = f"{labels.dataset_short(dataset)}, k = {k}"
        yield FigureSpec(
            f"no_search_{dataset}_k{k}",
            dataset,
            None,
            "no_search",
            f"{where}: tuned and untuned runs under one budget. Each marker is an untuned run with "
            "the whole budget, over its ρ (AdamWOSM: C); bars are standard deviations over seeds. "
            "For methods with a second hyperparameter a line joins guesses with the same value of "
            "it; hollow markers are variants with a schedule or averaging. Dashed: the best point "
            "of the method's own grid, where the budget covers all of its runs, with its standard "
            "deviation; dotted grey: that of Online's grid. Markers above the dashed line beat the "
            "search; values far below are cut off." + _left_out(rows),
            lambda rows=rows, where=where: draw_untuned(  # type: ignore[misc]
                rows, f"{where}: untuned runs and searches", study.methods
            ),
            data=rows,
        )


def draw_untuned(rows: pd.DataFrame, title: str, methods: list[str]) -> Figure | None:
    """One row of panels per epsilon, one column per method, with all its variants.

    rows: from `analysis.untuned_runs.with_alternatives`, of one data set at one k. methods: all of
    the report, for colours. None if no guess has a value.
    """
    rows = rows.dropna(subset="mean")
    drawn = _methods(rows)[:_MAX_COLUMNS]
    if rows.empty:
        return None
    epsilons = sorted(rows["epsilon"].unique())
    figure, panels = layout.make_panel_grid(len(epsilons), len(drawn), title, sharex="col")
    for epsilon, line in zip(epsilons, panels, strict=True):
        here = rows[rows["epsilon"] == epsilon]
        for method, axes in zip(drawn, line, strict=True):
            _draw(axes, here[here["method"] == method], methods)
            if axes is line[0]:
                axes.set_ylabel(f"ε = {epsilon:g}\n{labels.metric_label(here['metric'].iloc[0])}")
            if line is panels[0]:
                axes.set_title(
                    "\n".join(textwrap.wrap(labels.method_label(method), _MAX_TITLE_LENGTH))
                )
            if line is panels[-1]:
                axes.set_xlabel(f"guessed {labels.SYMBOLS[_axis(method)]}")
                layout.plain_ticks(axes.xaxis)
        _cut(line[0], here)
    grey: dict[str, Any] = {"color": "#555555"}
    laid_over = [variant for variant in sorted(rows["variant"].unique()) if variant]
    layout.add_legend(
        figure,
        [
            Line2D([], [], label="one run without a search", marker="o", **grey),
            *(
                Line2D(
                    [],
                    [],
                    label=f"the same, {variant}",
                    marker="o",
                    **_variant_style(variant),
                    **grey,
                )
                for variant in laid_over
            ),
            Line2D([], [], label="best of the method's own search", linestyle="--", **grey),
            Line2D([], [], label="best of Online's search", linestyle=":", color="#9A9A9A"),
        ],
    )
    return figure


def _methods(rows: pd.DataFrame) -> list[str]:
    return labels.sort_methods(rows.dropna(subset="mean")["method"].unique())


def _left_out(rows: pd.DataFrame) -> str:
    """A note on methods without a panel, whose numbers are in the figure's CSV file."""
    others = [labels.method_label(method) for method in _methods(rows)[_MAX_COLUMNS:]]
    return f" Not drawn: {', '.join(others)}." if others else ""


def _draw(axes: Axes, rows: pd.DataFrame, methods: list[str]) -> None:
    axes.set_xscale("log")
    if rows.empty:
        return
    first = rows.iloc[0]
    method = first["method"]
    colour, marker = styles.colours(methods)[method], styles.markers(methods)[method]
    axis = _axis(method)
    others = ["variant", *(name for name in POINT if name != axis)]
    for (variant, *_), guess in rows.groupby(others, dropna=False):
        guess = guess.sort_values(axis)
        axes.errorbar(
            guess[axis],
            guess["mean"],
            yerr=guess["std"] if guess["std"].notna().any() else None,
            color=colour,
            marker=marker,
            capsize=2,
            linewidth=1.0,
            **_variant_style(variant),
        )
    if pd.notna(first["own_mean"]):
        axes.axhline(first["own_mean"], color=colour, linestyle="--", linewidth=1.2)
        if pd.notna(first["own_std"]):
            low, high = (first["own_mean"] + sign * first["own_std"] for sign in (-1, 1))
            axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)
    if method != "online" and pd.notna(first["online_mean"]):
        axes.axhline(first["online_mean"], color="#9A9A9A", linestyle=":", linewidth=1.2)


def _variant_style(variant: str) -> dict[str, Any]:
    """The style of guesses with a schedule or averaging: hollow, on a dashed line."""
    dashes = (4, 2, 1, 2) if "averaged" not in variant else (4, 2, 1, 2, 1, 2)
    return {"markerfacecolor": "white", "linestyle": (0, dashes)} if variant else {}


def _axis(method: str) -> str:
    """The guessed hyperparameter, or the first of two."""
    return labels.searched_axes(method)[0]


def _cut(axes: Axes, rows: pd.DataFrame) -> None:
    """Limit the y axis to values near a search's best point."""
    searched = pd.concat([rows["own_mean"], rows["online_mean"]]).dropna()
    if not is_higher_better(rows["metric"].iloc[0]):
        layout.log_axis(axes)
        return
    if searched.empty:
        return
    top = max((rows["mean"] + rows["std"].fillna(0)).max(), searched.max())
    least = min(searched.min(), rows["mean"].max())  # the best guess is seen, however far behind
    height = max(top - least, _MIN_VALUE)
    low, _ = axes.get_ylim()
    axes.set_ylim(max(low, least - _DEPTH * height), top + 0.2 * height)
