"""The results in a terminal."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from oso_dp import labels
from oso_dp.analysis.accounts import account, require_within
from oso_dp.analysis.cell_verdicts import is_whole_grid, judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.load import read_study
from oso_dp.metrics import is_higher_better
from oso_dp.study.plan import plans_of, read_plan

_PART = "*"  # behind the name of a method


def summary_table(results: Path) -> Table:
    """Best on test per data set, k, epsilon and method; the best method is bold.

    Where a part of a grid is among them, its method has a mark, and none is: the best of more
    points is better by their number alone. Raises OsoError for results that are missing, empty or
    of another schema, or above a budget.
    """
    plans = plans_of(results)
    study = read_study(results, plans)
    require_within(account(study.runs, *map(read_plan, plans)))
    ran = settings(study)
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
    for dataset, k in ran:
        cells = judged_cells(study, dataset, k)
        cells = cells[cells["status"] != "not run"]
        where = [f"{labels.dataset_short(dataset)}, {k}"] if len(ran) > 1 else []
        for _, rows in cells.groupby("epsilon", dropna=False):
            whole = {row["method"]: is_whole_grid(row) for row in rows.to_dict("records")}
            best = _best(rows) if all(whole.values()) else None
            if not all(whole.values()):
                table.caption = f"{_PART} a part of its grid: none is best where one is"
            for row in rows.itertuples():
                table.add_row(
                    *where,
                    labels.epsilon_text(row.epsilon),
                    labels.method_label(row.method) + ("" if whole[row.method] else _PART),
                    _value(row),
                    str(row.seeds),
                    labels.number(row.noise_multiplier, ".3f"),
                    labels.point_text(row.method, row.learning_rate, row.threshold, row.quantile),
                    style="bold" if row.method == best else "",
                )
            table.add_section()
    return table


def _value(row: Any) -> str:
    if row.status != "run":
        return row.status
    lost = f", {row.best_diverged} diverged" if row.best_diverged else ""
    return f"{labels.spread(row.mean, row.std)} {row.unit}{lost}"


def _best(rows: pd.DataFrame) -> str | None:
    """The best of several methods; none where there is nothing to choose from."""
    valued = rows[rows["status"] == "run"]
    if len(valued) < 2:
        return None
    higher = is_higher_better(valued["metric"].iloc[0])
    return valued.loc[valued["mean"].idxmax() if higher else valued["mean"].idxmin(), "method"]
