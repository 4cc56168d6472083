"""Selection bias of the paper's checkpoint rule."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.selection_bias import GAIN_COLUMNS, comparable_cells, selection_bias
from oso_dp.metrics import is_higher_better
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

_NOTES = (
    "A row is the mean over the grids (k and ε) of a data set and method that have a value by all "
    "three rules. “Adds”: value under the paper's rule minus value under the other; positive means "
    "that the paper's rule reports a better value.",
    "Best on test: the paper's. Last step: each run's last checkpoint; the grid's point is still "
    "selected on the test set. Cross-selection: checkpoint and point are selected on one half of "
    "the test set and reported on the other; mean of both directions.",
)


def tables(sources: ReportContext) -> list[Table]:
    return [rules_table(sources.study)]


def rules_table(study: ResultSet) -> Table:
    """The rows of `selection_bias`, printed as means per data set and method."""
    data = selection_bias(study)
    printed = []
    for dataset in labels.sort_datasets(data["dataset"].unique()):
        of_dataset = data[data["dataset"] == dataset]
        for method in labels.sort_methods(of_dataset["method"].unique()):
            rows = of_dataset[of_dataset["method"] == method]
            first, last, cross = (rows[name].mean() for name in GAIN_COLUMNS)
            printed.append(
                {
                    "data set": labels.dataset_short(dataset),
                    "method": labels.method_label(method),
                    "grids": str(len(rows)),
                    "in": rows["unit"].iloc[0],
                    "best on test": f"{first:.2f}",
                    "last step": f"{last:.2f}",
                    "cross-selection": f"{cross:.2f}",
                    "adds over last step": labels.format_signed(rows["adds_over_last"].mean()),
                    "adds over cross-selection": labels.format_signed(
                        rows["adds_over_cross"].mean()
                    ),
                    "at most": labels.format_signed(rows["adds_over_cross"].max()),
                }
            )
    columns = ["data set", "method", "grids", "in", "best on test", "last step", "cross-selection"]
    columns += ["adds over last step", "adds over cross-selection", "at most"]
    title = "Selection bias of the checkpoint rule"
    return Table("checkpoint_rules", title, data, pd.DataFrame(printed, columns=columns), _NOTES)


def rules_sentence(study: ResultSet) -> str:
    """How much the paper's rule adds, per unit, and in how many comparisons the winner changes.

    Only `comparable_cells` count.
    """
    data = selection_bias(study)
    if data.empty:
        return "No grid has a value by every checkpoint rule."
    parts = [
        f"{rows['adds_over_cross'].mean():.2f} {unit} over cross-selection and "
        f"{rows['adds_over_last'].mean():.2f} over the last step "
        f"(mean of {len(rows)} grid{'s' if len(rows) > 1 else ''})"
        for unit, rows in data.groupby("unit", sort=False)
    ]
    text = f"The paper's checkpoint rule adds {'; '.join(parts)}."
    contested = comparable_cells(study)
    if not contested:
        return text
    moved = sum(_winner(rows, "mean") != _winner(rows, "cross_mean") for rows in contested)
    return text + (
        f" By cross-selection another private method would be best in {moved} of {len(contested)} "
        f"comparison{'s' if len(contested) > 1 else ''} of complete grids at equal budgets."
    )


def _winner(rows: pd.DataFrame, column: str) -> str:
    higher = is_higher_better(rows["metric"].iloc[0])
    ranked = rows.sort_values([column, "method"], ascending=[not higher, True])
    return str(ranked["method"].iloc[0])
