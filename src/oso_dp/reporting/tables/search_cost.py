"""Noise by grid size and by search accounting, and the outcomes of searches."""

from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.noise_tables import noise_multipliers
from oso_dp.analysis.random_stopping import distributions, outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.search_costs import RULES, search_costs, select_rule
from oso_dp.analysis.values import CELL, are_comparable
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.table import (
    DATASET,
    EPSILON,
    METHOD,
    Column,
    K,
    ReportContext,
    Table,
    TableSpec,
    format_cells,
    mean_std,
    number,
)


def tables(context: ReportContext) -> list[Table]:
    study = context.study
    return [noise_table(study), search_cost_table(study), outcome_table(study)]


_NOISE = TableSpec(
    "noise_multipliers",
    "Noise multiplier by grid size",
    (
        *(DATASET, K, EPSILON),
        Column("method", "method", labels.method_label),
        Column("N", "grid_size"),
        Column("noise multiplier ν", "noise_multiplier", number(".3f")),
        Column("ν / Online's ν", "ratio_to_online", number(".2f")),
    ),
    ("The budget covers all N runs of a grid: a larger grid needs more noise per run.",),
)


def noise_table(study: ResultSet) -> Table:
    data = noise_multipliers(study)
    notes = [*_NOISE.notes]
    if ((data["source"] == "rows") & ~data["dataset"].isin(DATASETS)).any():
        notes.append(
            "Without a plan, N of a grid that is not in the paper is the number of run points."
        )
    if shared := [labels.dataset_short(name) for name in study.shared_budgets]:
        notes.append(
            f"On {', '.join(shared)} the budget covers the runs of all methods, grids and seeds: N "
            "is their number, and all have the same noise."
        )
    return _NOISE.fill(data, notes=notes)


def search_cost_table(study: ResultSet) -> Table:
    """One row per data set and number of runs, one column per rule."""
    data = search_costs(study)
    rows = [
        {"dataset": dataset, "epsilon": epsilon, "runs": runs, "grids": costs["grids"].iloc[0]}
        | {rule.heading: select_rule(costs, rule).get(runs) for rule in RULES}
        for (dataset, epsilon, runs), costs in data.groupby(
            ["dataset", "epsilon", "runs"], sort=False
        )
    ]
    columns = [DATASET, EPSILON, Column("N", "runs"), Column("grid", "grids")]
    columns += [Column(rule.heading, rule.heading, number(".3f")) for rule in RULES]
    return Table(
        "search_cost",
        "Noise multiplier of a search of N runs",
        data,
        format_cells(pd.DataFrame(rows), columns),
        (
            "Cells are the noise multiplier ν of each run. A dash: no noise meets the budget, or a "
            "single run has no random stopping.",
            "All N: every run is charged, as in the paper (RDP) or by a tighter accountant (PLD). "
            "Poisson, geometric, logarithmic: random stopping, where candidates are drawn from the "
            "grid a random number of times, N on average with this distribution, and only the best "
            "is released (Papernot and Steinke 2022, by RDP).",
        ),
    )


_ACCOUNTINGS = {COMPOSITION: "all N", RANDOM_STOPPING: "random stopping"}
_OUTCOME_COLUMNS = (
    *(DATASET, K, EPSILON, METHOD),
    Column("N", "grid_size", number(".0f")),
    Column("K", lambda row: row["distribution"] or labels.DASH),
    *(
        column
        for name, label in _ACCOUNTINGS.items()
        for column in (
            Column(f"ν, {label}", f"noise_multiplier_{name}", number(".3f")),
            Column(label, mean_std(f"value_{name}", f"std_{name}")),
        )
    ),
    Column("luck", "luck", number(".2f")),
    Column("grid points", "points", number(".0f")),
)


def outcome_table(study: ResultSet) -> Table:
    """One row per cell and distribution of K, with both kinds of search accounting."""
    data = outcomes(study)
    composed = data[data["search_accounting"] == COMPOSITION].set_index(CELL)
    rows = []
    for stopped in data[data["search_accounting"] == RANDOM_STOPPING].to_dict("records"):
        cell = tuple(stopped[name] for name in CELL)
        beside: dict[str, Any] = {}
        if cell in composed.index and are_comparable(stopped, composed.loc[cell]):
            beside = composed.loc[cell].to_dict()
        rows.append(
            stopped
            | {f"{name}_{RANDOM_STOPPING}": stopped[name] for name in _OUTCOMES}
            | {f"{name}_{COMPOSITION}": beside.get(name) for name in _OUTCOMES}
        )
    notes = (
        "Values are in the unit of the other tables. All N: the grid's best point. Random "
        "stopping: the expected best of K points drawn with replacement, where K is "
        f"{distributions(data)} with a mean of N; ± is over seeds, luck the standard "
        "deviation over K and the draws. A dash: the grid is incomplete, or its "
        "noise matches no known distribution.",
        "Computed from the stored runs of the grid's points, each with the noise that its search "
        "accounting requires. A point drawn twice counts as one training run, with its mean over "
        "seeds; a real search would train it again and release the better result.",
    )
    return Table(
        "search_outcome",
        "Outcome of a search by search accounting",
        data,
        format_cells(pd.DataFrame(rows), _OUTCOME_COLUMNS),
        notes if len(data) else ("No runs under random stopping.",),
    )


_OUTCOMES = ("noise_multiplier", "value", "std")
