"""What the linear scaling rule gives, beside the searched grid and the best guess."""

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
    "The rule of Panda et al. (2024): in trials at small shares of the budget the whole grid is "
    "tried; a line through the best learning rates, over the epsilon that one run has to itself, "
    "gives that of the final run, which has what is left of the budget. Values are means over "
    "seeds in the unit of the other tables; each seed is a search of its own. ν: of the final run.",
    "ρ: of the final runs, and of how many seeds. The study has runs at the grid's points only: "
    "the line's ρ is rounded to the nearest of them in the logarithm, which is ours, and held "
    "within the grid's range. Off the grid: of how many seeds the line left that range. Other "
    "hyperparameters are those of the last trial's best point.",
    "The searched grid's best, the best guess and each trial's best point are chosen on the test "
    "set. The budget of a rule's search pays for all its trials and one final run; the study holds "
    "a final run at every point, and to publish more of them would cost more.",
)


def tables(sources: ReportContext) -> list[Table]:
    """None where nothing was run by the rule."""
    table = linear_scaling_table(sources.study)
    return [table] if len(table.data) else []


def linear_scaling_table(study: ResultSet) -> Table:
    """`outcomes`, a row per cell."""
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
