"""What one budget gives, by how it is spent: a search, or one run from a default."""

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
    "set, of a search at its best point; mean and standard deviation over seeds. Chosen on the "
    "other half: checkpoint and point by one half of the test set, judged by the other, so that no "
    "choice flatters itself. Above Online's search: the difference of the values, positive is "
    "better, with its 95 % interval.",
    "† The default was chosen by looking at this very data set, so that it is not free here. "
    "* Only a part of that grid was run: its best point may be another, and nothing is compared "
    "with it. It is a part that has the paper's own best point, where one was run.",
)


def tables(sources: ReportContext) -> list[Table]:
    """None where nothing was run from a default."""
    table = one_budget_table(sources.study)
    return [table] if len(table.data) else []


def one_budget_table(study: ResultSet) -> Table:
    """`ways`, a row each."""
    data = budget_strategies(study)
    rows = [_printed(row) for row in data.to_dict("records")]
    printed = pd.DataFrame(rows, columns=_HEADINGS)
    return Table("one_budget", "What one budget gives: search or default", data, printed, _NOTES)


def strategy_label(row: dict[str, Any]) -> str:
    """The method, what is laid over its steps, and how often a search that stops draws."""
    drawn = "" if labels.is_missing(row["distribution"]) else f", K {row['distribution']}"
    return labels.variant_method_label(row["method"], row["variant"]) + drawn


def _printed(row: dict[str, Any]) -> list[str]:
    gain = labels.DASH
    if not labels.is_missing(row["gain"]):
        gain = f"{row['gain']:+.2f}"
        if not labels.is_missing(row["gain_half"]):  # one seed each says nothing of chance
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
