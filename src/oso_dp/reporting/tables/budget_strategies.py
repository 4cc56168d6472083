"""Budget strategies: values of searches and untuned runs under the same budget."""

from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.budget_strategies import budget_strategies, is_reference, strategy_title
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

_HEADINGS = [
    *("data set", "ε", "way", "method", "chosen by", "runs", "ν", "value"),
    *("seeds", "chosen on the other half", "above Online's search"),
]
_NOTES = (
    "All rows of a data set and an ε have the same budget. Value: the best checkpoint on the test "
    "set, for a search at its best point; mean and standard deviation over seeds. Chosen on the "
    "other half: checkpoint and point selected on one half of the test set and reported on the "
    "other, without selection bias. Above Online's search: the difference of the values, positive "
    "is better, with its 95 % interval.",
    "† The default was chosen on this data set, so its choice has a privacy cost that is not "
    "counted. * Incomplete grid: its best point is unknown, and no difference is given. If runs at "
    "the paper's best point exist, it contains them.",
)


def tables(sources: ReportContext) -> list[Table]:
    """No table without runs from a default."""
    table = one_budget_table(sources.study)
    return [table] if len(table.data) else []


def one_budget_table(study: ResultSet) -> Table:
    """The rows of `oso_dp.analysis.budget_strategies.budget_strategies`."""
    data = budget_strategies(study)
    rows = [_printed(row) for row in data.to_dict("records")]
    printed = pd.DataFrame(rows, columns=_HEADINGS)
    return Table("one_budget", "Search or default under one budget", data, printed, _NOTES)


def strategy_label(row: dict[str, Any]) -> str:
    """The method and variant, with the distribution of K under random stopping."""
    drawn = "" if labels.is_missing(row["distribution"]) else f", K {row['distribution']}"
    return labels.variant_method_label(row["method"], row["variant"]) + drawn


def _printed(row: dict[str, Any]) -> list[str]:
    gain = labels.DASH
    if not labels.is_missing(row["gain"]):
        gain = f"{row['gain']:+.2f}"
        if not labels.is_missing(row["gain_half"]):  # missing with one seed each
            low, high = row["gain"] - row["gain_half"], row["gain"] + row["gain_half"]
            gain += f" [{low:.2f}, {high:.2f}]"
    if is_reference(row):
        gain = "itself"
    return [
        labels.dataset_short(row["dataset"]),
        labels.format_budget(row["epsilon"]),
        strategy_title(row),
        strategy_label(row),
        row["chosen"] + (" †" if row["seen"] else ""),
        labels.format_number(row["runs"], ".0f"),
        labels.format_number(row["noise_multiplier"], ".3f"),
        labels.format_mean_std(row["mean"], row["std"]) + ("" if row["whole"] else "*"),
        labels.format_number(row["seeds"], ".0f"),
        labels.format_mean_std(row["cross_mean"], row["cross_std"]),
        gain,
    ]
