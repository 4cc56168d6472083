"""Outcomes of searches by composition and by random stopping."""

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.random_stopping import distributions, outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import CELL, are_comparable
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

_RULES = {COMPOSITION: "all N", RANDOM_STOPPING: "random stopping"}
_HEADINGS = [
    *("data set", "k", "ε", "method", "N", "K"),
    *(column for heading in _RULES.values() for column in (f"ν, {heading}", heading)),
    *("luck", "grid points"),
]


def tables(sources: ReportContext) -> list[Table]:
    return [outcome_table(sources.study)]


def outcome_table(study: ResultSet) -> Table:
    """One row per cell and distribution of K, with both kinds of search accounting."""
    data = outcomes(study)
    composed = data[data["search_accounting"] == COMPOSITION].set_index(CELL)
    rows = []
    for stopped in data[data["search_accounting"] == RANDOM_STOPPING].to_dict("records"):
        cell = tuple(stopped[name] for name in CELL)
        at = {RANDOM_STOPPING: stopped}
        if cell in composed.index and are_comparable(stopped, composed.loc[cell]):
            at[COMPOSITION] = composed.loc[cell].to_dict()
        cells = {
            "data set": labels.dataset_short(stopped["dataset"]),
            "k": str(stopped["k"]),
            "ε": labels.format_budget(stopped["epsilon"]),
            "method": labels.variant_method_label(stopped["method"], stopped["variant"]),
            "N": labels.format_number(stopped["grid_size"], ".0f"),
            "K": stopped["distribution"] or labels.DASH,
        }
        for name, heading in _RULES.items():
            row = at.get(name, {})
            cells[f"ν, {heading}"] = labels.format_number(row.get("noise_multiplier"), ".3f")
            cells[heading] = labels.format_mean_std(row.get("value"), row.get("std"))
        cells["luck"] = labels.format_number(stopped.get("luck"), ".2f")
        cells["grid points"] = labels.format_number(stopped.get("points"), ".0f")
        rows.append(cells)
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
        pd.DataFrame(rows, columns=_HEADINGS),
        notes if len(data) else ("No runs under random stopping.",),
    )
