"""Index of the paper's eleven figures: file, status and number of runs."""

from collections.abc import Iterable

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.methods import PAPER_METHODS
from oso_dp.paper.tables import DATASETS, paper_tables
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

NOT_RUN = "not run"


def tables(sources: ReportContext) -> list[Table]:
    study = sources.study
    if not set(study.datasets) & set(DATASETS):
        return []
    return [figures_table(study, sources.pictures)]


def figures_table(study: ResultSet, pictures: Iterable[str]) -> Table:
    """One row per figure of the paper: what it shows, its file, its status, cells and runs."""
    drawn = set(pictures)
    rows = [
        _row(1, "cosine of true and sanitized gradient over C", drawn, len(study.cosine) > 0),
        _row(2, "how two noisy sums share one privacy cost", drawn, "figure_02" in drawn),
    ]
    for table in sorted(paper_tables(), key=lambda table: table.figure):
        cells = judge_cells(study, table.dataset, table.k)
        cells = cells[cells["method"].isin(PAPER_METHODS) & cells["epsilon"].notna()]
        ran = cells[cells["status"] != NOT_RUN]
        about = f"{labels.dataset_short(table.dataset)}, k = {table.k}: metric over ε"
        row = _row(table.figure, about, drawn, len(ran) > 0)
        row |= {"cells": len(cells), "cells_run": len(ran), "runs": int(ran["runs"].sum())}
        rows.append(row)
    data = pd.DataFrame(rows).astype(dict.fromkeys(("cells", "cells_run", "runs"), "Int64"))
    printed = pd.DataFrame(
        {
            "figure": data["figure"],
            "what": data["what"],
            "status": data["status"],
            "cells run": [
                labels.DASH if pd.isna(row.cells) else f"{row.cells_run} of {row.cells}"
                for row in data.itertuples()
            ],
            "runs": [labels.format_number(n, ",.0f") for n in data["runs"]],
            "file": [labels.DASH if pd.isna(name) else name for name in data["file"]],
        }
    )
    note = "A cell is a method at an ε. A figure without runs or printed values is not drawn."
    return Table("figures", "The paper's figures", data, printed, (note,))


def _row(number: int, content: str, drawn: set[str], ran: bool) -> dict[str, object]:
    name = f"figure_{number:02d}"
    status = NOT_RUN if not ran else "drawn" if name in drawn else "run, without a value"
    if name in drawn and not ran:
        status = f"{NOT_RUN}: the paper's values only"
    file = f"figures/{name}.png" if name in drawn else None
    return {"figure": number, "what": content, "status": status, "file": file}
