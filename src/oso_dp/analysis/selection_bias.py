"""Selection bias of the paper's checkpoint rule, best on test, against the two others."""

import pandas as pd

from oso_dp.analysis.cells import have_paper_length, list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import CELL, COMPARABLE_ON
from oso_dp.analysis.verdicts import is_complete_grid, judge_cells
from oso_dp.metrics import metric_direction

GAIN_COLUMNS = ["mean", "last_mean", "cross_mean"]
_COLUMNS = [
    *(*CELL, *COMPARABLE_ON, "metric", "unit", "seeds", *GAIN_COLUMNS),
    *("adds_over_last", "adds_over_cross", "whole"),
]


def selection_bias(study: ResultSet) -> pd.DataFrame:
    """One row per grid: its value under each rule, and the paper's minus each of the others.

    Printed unit. adds_*: positive where the paper's rule reports a better value. whole: whether the
    grid is complete.
    """
    frames = [judge_cells(study, dataset, k) for dataset, k in list_panels(study)]
    if not frames:  # nothing was searched by composition
        return pd.DataFrame(columns=_COLUMNS)
    cells = pd.concat(frames)
    cells = cells.dropna(subset=GAIN_COLUMNS).reset_index(drop=True)
    direction = cells["metric"].map(metric_direction).astype(float)  # also where there is none
    for rule in ("last", "cross"):
        cells[f"adds_over_{rule}"] = (cells["mean"] - cells[f"{rule}_mean"]) * direction
    cells["whole"] = [is_complete_grid(row) for row in cells.to_dict("records")]
    return cells[_COLUMNS]


def comparable_cells(study: ResultSet) -> list[pd.DataFrame]:
    """Groups of rows of `selection_bias` that can be compared: one data set, k and budget.

    Only complete grids, with comparable runs that are not shorter than the paper's.
    """
    rows = selection_bias(study)
    rows = rows[rows["whole"].astype(bool) & have_paper_length(rows)]
    groups = rows.groupby(["dataset", "k", "epsilon", *COMPARABLE_ON])
    return [alike for _, alike in groups if len(alike) > 1]
