"""The metric over epsilon, a line per method: Figures 3 to 11, other methods, random stopping.

k = 7: Figure 3 (MNIST), Figure 4 (Fashion-MNIST), Figure 5 (AG News). k = 9: Figure 6 (MNIST),
Figure 7 (Fashion-MNIST), Figure 8 (AG News). k = 5: Figure 9, Figure 10, Figure 11.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.analysis.cells import RAN, list_panels
from oso_dp.analysis.random_stopping import distributions, outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import is_incomplete_grid, judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_higher_better, is_logarithmic
from oso_dp.paper.tables import DATASETS, find_table, paper_tables
from oso_dp.reporting.figures.chart import (
    OURS_AND_PAPER,
    Axis,
    Chart,
    Facet,
    FigureSpec,
    Line,
    colours,
    method_series,
)
from oso_dp.reporting.tables.cells import variant_note

ORDER = 20
_FILLINGS: tuple[dict[str, str], ...] = ({}, {"mfc": "white"}, {"mfc": "#BBBBBB"}, {"mfc": "black"})


def figures(study: ResultSet) -> Iterator[FigureSpec]:
    """One per data set and k that was run; for the paper's others, only its values."""
    ran = list_panels(study)
    for dataset, k in ran:
        yield metric_figure(study, dataset, k, measured=True)
        yield other_methods_figure(study, dataset, k)
    if set(study.datasets) & set(DATASETS):
        for table in paper_tables():
            if (table.dataset, table.k) not in ran:
                yield metric_figure(study, table.dataset, table.k, measured=False)
    yield from outcome_figures(study)


def metric_figure(study: ResultSet, dataset: str, k: int, measured: bool) -> FigureSpec:
    """The paper's methods, ours beside the paper's values."""
    table = find_table(dataset, k)
    cells = judge_cells(study, dataset, k)
    better = "Higher" if is_higher_better(cells["metric"].iloc[0]) else "Lower"
    cells = cells[cells["method"].isin(PAPER_METHODS)]
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    ran = cells.loc[cells["status"] == RAN, "method"]
    caption = [
        f"{where}: best on test over the budget of the {study.budgeted_runs(dataset)}. {better} is "
        "better."
    ]
    if dataset in DATASETS:
        caption.append(labels.format_epochs_note(cells["epochs"]))
    if measured and (cells.loc[ran.index, "seeds"] > 1).any():
        caption.append("Filled markers are ours, with the standard deviation over seeds.")
    elif measured:
        caption.append("Filled markers are ours, from one seed, so without error bars.")
    if table and cells["paper_mean"].notna().any():
        caption.append(
            f"Hollow markers with dashed lines are the paper's (Table {table.number}, five seeds)."
        )
    elif table:
        caption.append("The paper plots this figure but prints no values for it.")
    if measured:
        caption += [incomplete_note(cells), variant_note(cells)]
    name = f"figure_{table.figure:02d}" if table else f"metric_over_epsilon_{dataset}_k{k}"
    title = where if measured else f"{where}: the paper's values, none of ours"
    # Without a figure in the paper, at least two methods are needed.
    drawn = cells if table or ran.nunique() > 1 else cells.iloc[:0]
    draw = metric_chart(drawn, title, study.methods).draw
    return FigureSpec(name, dataset, k, "metric", _join(caption), draw, measured)


def other_methods_figure(study: ResultSet, dataset: str, k: int) -> FigureSpec:
    """Methods that are not in the paper, beside Online and FixedThreshold."""
    cells = judge_cells(study, dataset, k)
    # The paper's values are in its own figure.
    cells = cells.assign(**{name: None for name in cells if name.startswith("paper_")})
    further = ~cells["method"].isin(PAPER_METHODS) & cells["mean"].notna()
    kept = ("online", "fixed_threshold", "no_dp", *cells.loc[further, "method"])
    cells = cells[cells["method"].isin(kept) & further.any()]
    where = f"{labels.dataset_short(dataset)}, k = {k}"
    caption = (
        f"{where}: methods that the paper does not compare, with Online and FixedThreshold for "
        f"reference; best on test over the budget of the {study.budgeted_runs(dataset)}. The table "
        "has each N.",
        labels.format_epochs_note(cells["epochs"]) if dataset in DATASETS else "",
        incomplete_note(cells),
        variant_note(cells),
    )
    draw = metric_chart(cells, f"{where}: methods that are not in the paper", study.methods).draw
    name = f"other_methods_{dataset}_k{k}"
    return FigureSpec(name, dataset, k, "other_methods", _join(caption), draw)


def _join(sentences: Iterable[str]) -> str:
    return " ".join(filter(None, sentences))


def incomplete_note(cells: pd.DataFrame) -> str:
    """A sentence on incomplete grids, whose best is over fewer points."""
    budgets: dict[str, list[str]] = {}
    for row in cells.dropna(subset="epsilon").to_dict("records"):
        if row["status"] == RAN and is_incomplete_grid(row):
            budgets.setdefault(row["method"], []).append(f"{row['epsilon']:g}")
    names = [
        f"{labels.method_label(method)} (ε = {', '.join(budgets[method])})"
        for method in sorted(budgets)
    ]
    return f"Only a part of these grids ran: {', '.join(names)}." if names else ""


def metric_chart(cells: pd.DataFrame, title: str, methods: list[str]) -> Chart:
    """The judged cells of one data set at one k (`judge_cells`), ours and the paper's.

    NoDP is a reference line; at a single epsilon it is a row of a dot plot. methods: all of the
    report, for colours.
    """
    metric = cells["metric"].iloc[0] if len(cells) else ""
    ours = cells[["method", "epsilon", "mean", "std"]].assign(source="ours")
    paper = ours.assign(mean=cells["paper_mean"], std=cells["paper_std"], source="paper")
    numbers = dict.fromkeys(("epsilon", "mean", "std"), float)
    values = pd.concat([ours.astype(numbers), paper.astype(numbers)], ignore_index=True)
    design = sorted(cells["epsilon"].dropna().unique())  # also those that were not run
    known = values.dropna(subset=["epsilon", "mean"])
    if len(design) == 1 and len(known):
        at = f"{title}, ε = {labels.format_budget(design[0])}"
        return dot_chart(values, metric, at, methods)
    lines = [
        no_dp_line(mean, methods, "NoDP, ours")
        for mean in ours.loc[ours["epsilon"].isna(), "mean"].dropna()
    ]
    axis = budget_axis(design, "ε of the complete grid")
    return line_chart(known, metric, title, methods, axis, lines)


def no_dp_line(
    mean: float, methods: Iterable[str], label: str, panel: Mapping[str, Any] | None = None
) -> Line:
    """The accuracy without privacy, across a panel."""
    style = {"color": colours(methods)["no_dp"], "linestyle": (0, (1, 1.5)), "label": label}
    return Line(mean, style, panel or {})


def budget_axis(epsilons: Sequence[float], label: str) -> Axis:
    return Axis("epsilon", label, categories={e: f"{e:g}" for e in epsilons})


def line_chart(
    values: pd.DataFrame,
    metric: str,
    title: str,
    methods: list[str],
    budgets: Axis,
    lines: Sequence[Line] = (),
    columns: Facet | None = None,
) -> Chart:
    """Columns method, epsilon, mean and std, and source (ours or paper) or that of the facet."""
    drawn = values["method"].unique()
    # Methods are side by side, so that error bars do not overlap.
    dodge = min(0.085, 0.7 / max(1, len(drawn))), -0.04
    return Chart(
        values,
        title,
        budgets,
        Axis("mean", labels.metric_label(metric), "log" if is_logarithmic(metric) else "linear"),
        method_series(drawn, methods),
        styles={"": {}} if columns else OURS_AND_PAPER,
        style=None if columns else "source",
        error="std",
        dodge=dodge,
        lines=lines,
        columns=columns,
    )


def dot_chart(values: pd.DataFrame, metric: str, title: str, methods: list[str]) -> Chart:
    """A dot with its standard deviation for each value, one row per method.

    values: columns method, mean, std (printed unit; NaN for one seed) and source, which decides the
    filling: the first source's is its colour, then come white, grey and black.
    """
    known = values.dropna(subset="mean")
    sources = list(dict.fromkeys(known["source"]))
    styles = {
        source: {"linestyle": "", **_FILLINGS[place % len(_FILLINGS)]}
        | ({"label": source} if len(sources) > 1 else {})
        for place, source in enumerate(sources)
    }
    series = method_series(known["method"].unique(), methods, label=False)
    return Chart(
        known,
        title,
        Axis("mean", labels.metric_label(metric)),
        Axis("method", categories={name: labels.method_label(name) for name in series}),
        series,
        styles=styles,
        style="source",
        error="std",
        dodge=(0.0, 0.22),
    )


def outcome_figures(study: ResultSet) -> Iterator[FigureSpec]:
    """One for each data set and k that was run under composition and random stopping."""
    data = outcomes(study)
    for (dataset, k), rows in data.groupby(["dataset", "k"], sort=False):
        where = f"{labels.dataset_short(dataset)}, k = {k}"
        caption = (
            f"{where}: the outcome of a search under either rule, from runs with the noise that "
            "each one asks for: the best point where all are paid for, the expected best of K "
            f"random points, K {distributions(rows)} with the grid's size as its mean. Bars are "
            "standard deviations over seeds. The paper has composition only."
        )
        title, metric = f"{where}: two rules for a search", rows["metric"].iloc[0]
        draw = outcome_chart(rows, metric, title, study.methods).draw
        name = f"search_outcome_{dataset}_k{k}"
        yield FigureSpec(name, dataset, None, "search_cost", caption, draw)


def outcome_chart(rows: pd.DataFrame, metric: str, title: str, methods: list[str]) -> Chart:
    """One panel per accounting and distribution of K, one line per method.

    rows: of `random_stopping.outcomes`, of one data set at one k; none is drawn unless both rules
    have values. methods: all of the report, for colours.
    """
    valued = rows.dropna(subset="value").rename(columns={"value": "mean"})
    if set(valued["search_accounting"]) != {COMPOSITION, RANDOM_STOPPING}:
        valued = valued.iloc[:0]
    several = valued["distribution"].nunique() > 1
    ranks = {name: place for place, name in enumerate(STOPPING_ETA)}
    stopped = valued["search_accounting"] == RANDOM_STOPPING
    heading = "random stopping: the best of about N draws"
    headings = "random stopping, K " + valued["distribution"].astype(str) if several else heading
    valued = valued.assign(
        rank=valued["distribution"].map(ranks).where(stopped, -1).astype(float),
        source=pd.Series(headings, valued.index).where(stopped, "all N runs are paid for"),
    ).sort_values("rank", kind="stable")  # composition first
    epsilons = sorted(valued["epsilon"].unique())
    if len(epsilons) == 1:
        at = f"{title}, ε = {labels.format_budget(epsilons[0])}"
        return dot_chart(valued, metric, at, methods)
    axis = budget_axis(epsilons, "ε of the whole search")
    return line_chart(valued, metric, title, methods, axis, columns=Facet("source"))
