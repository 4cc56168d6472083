"""Searches by the linear scaling rule, beside the grid search and the best untuned run."""

from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.linear_scaling import outcomes
from oso_dp.analysis.result_set import ResultSet
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

_OWN, _GUESS = "the method's own search", "one run without a search"
_HEADINGS = [
    *(("", name) for name in ("data set", "k", "ε", "method")),
    *(("linear scaling rule", name) for name in ("ν", "ρ (seeds)", "off the grid", "final run")),
    *((_OWN, name) for name in ("ν", "best")),
    *((_GUESS, name) for name in ("ν", "best guess")),
]
_NOTES = (
    "The rule of Panda et al. (2024): trials with small fractions of the budget run the complete "
    "grid; a line through their best learning rates, over the epsilon of one run, gives the "
    "learning rate of the final run, which has the rest of the budget. Values are means over seeds "
    "in the unit of the other tables; each seed is a separate search. ν: of the final run.",
    "ρ: of the final runs, with the number of seeds. The study has runs at the grid's points only: "
    "the line's ρ is rounded to the nearest of them on the log scale, which is not part of the "
    "paper, and clipped to the grid's range. Off the grid: number of seeds whose line leaves that "
    "range. Other hyperparameters are those of the last trial's best point.",
    "The grid search's best point, the best untuned run and each trial's best point are selected "
    "on the test set. The budget of the rule's search covers all its trials and one final run; the "
    "study has a final run at every point, and publishing several of them would cost more.",
)


def tables(sources: ReportContext) -> list[Table]:
    """No table without runs by the rule."""
    table = linear_scaling_table(sources.study)
    return [table] if len(table.data) else []


def linear_scaling_table(study: ResultSet) -> Table:
    """The rows of `oso_dp.analysis.linear_scaling.outcomes`."""
    data = outcomes(study)
    printed = pd.DataFrame([_printed(row) for row in data.to_dict("records")])
    printed = printed.reindex(columns=range(len(_HEADINGS)))
    printed.columns = pd.MultiIndex.from_tuples(_HEADINGS)
    return Table("linear_scaling", "Search by the linear scaling rule", data, printed, _NOTES)


def _printed(row: dict[str, Any]) -> list[str]:
    return [
        labels.dataset_short(row["dataset"]),
        str(row["k"]),
        labels.format_budget(row["epsilon"]),
        labels.variant_method_label(row["method"], row["variant"]),
        labels.format_number(row["noise_multiplier"], ".3f"),
        row["learning_rates"] or labels.DASH,
        f"{row['beyond']} of {row['finals']}" if row["finals"] else labels.DASH,
        labels.format_mean_std(row["mean"], row["std"]),
        labels.format_number(row["own_noise_multiplier"], ".3f"),
        labels.format_mean_std(row["own_mean"], row["own_std"]),
        labels.format_number(row["guess_noise_multiplier"], ".3f"),
        labels.format_mean_std(row["guess_mean"], row["guess_std"]),
    ]
