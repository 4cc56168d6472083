"""The table of `oso summary`: results in a terminal."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from oso_dp import labels
from oso_dp.analysis.accounts import account_store, check_budgets
from oso_dp.analysis.cells import NOT_RUN, RAN, list_panels
from oso_dp.analysis.load import read_result_set
from oso_dp.analysis.values import COMPARABLE_ON, best_row
from oso_dp.analysis.verdicts import is_incomplete_grid, judge_cells
from oso_dp.reporting.tables.cells import hidden_variants_note
from oso_dp.study.plan import find_plans, read_plan

_PART = "*"  # behind the name of a method
_NOTES = {
    "part": f"{_PART} incomplete grid; none is bold beside one",
    "unlike": "None is bold where precision, length or delta differ",
}


def summary_table(results: Path) -> Table:
    """Best on test per data set, k, epsilon and method; the best method is bold.

    An incomplete grid is marked, and no method is bold beside one: the best of more points is
    better by their number alone. Nor is one bold where runs are not comparable. Raises OsoError for
    results that are missing, empty, of another schema, or above a budget.
    """
    plans = [read_plan(path) for path in find_plans(results)]
    study = read_result_set(results, plans)
    check_budgets(account_store(results, study.runs, *plans))
    ran = list_panels(study)
    title = "Best on test, mean ± standard deviation over seeds"
    if len(ran) == 1:
        title = f"{labels.dataset_label(ran[0][0])}, k = {ran[0][1]}\n{title}"
    # No vertical lines: the widest row then fits a terminal of 80 columns.
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    if len(ran) > 1:
        table.add_column("data set, k")
    for name in ("ε", "method"):
        table.add_column(name, no_wrap=True)
    for name in ("test", "seeds", "noise"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("best at")
    notes: set[str] = set()
    for dataset, k in ran:
        cells = judge_cells(study, dataset, k)
        cells = cells[cells["status"] != NOT_RUN]
        where = [f"{labels.dataset_short(dataset)}, {k}"] if len(ran) > 1 else []
        for _, rows in cells.groupby("epsilon", dropna=False):
            part = {row["method"]: is_incomplete_grid(row) for row in rows.to_dict("records")}
            ran_alike = len(rows.loc[rows["status"] == RAN, COMPARABLE_ON].drop_duplicates()) < 2
            best = _best(rows) if ran_alike and not any(part.values()) else None
            notes |= {"part"} if any(part.values()) else set()
            notes |= set() if ran_alike else {"unlike"}
            for row in rows.itertuples():
                table.add_row(
                    *where,
                    labels.format_budget(row.epsilon),
                    labels.variant_method_label(row.method, row.variant)
                    + (_PART if part[row.method] else ""),
                    _value(row),
                    str(row.seeds),
                    labels.format_number(row.noise_multiplier, ".3f"),
                    labels.format_point(row.method, row.learning_rate, row.threshold, row.quantile),
                    style="bold" if row.method == best else "",
                )
            table.add_section()
    captions = [text for name, text in _NOTES.items() if name in notes]
    table.caption = "\n".join(filter(None, [*captions, hidden_variants_note(study.points)])) or None
    return table


def _value(row: Any) -> str:
    if row.status != RAN:
        return row.status
    lost = f", {row.best_diverged} diverged" if row.best_diverged else ""
    return f"{labels.format_mean_std(row.mean, row.std)} {row.unit}{lost}"


def _best(rows: pd.DataFrame) -> str | None:
    """The best of several methods; None for fewer than two."""
    valued = rows[rows["status"] == RAN]
    return None if len(valued) < 2 else best_row(valued)["method"]
