"""What each checkpoint rule makes of every grid."""

import numpy as np
import pandas as pd

from oso_dp.analysis.cell_verdicts import is_whole_grid, judged_cells
from oso_dp.analysis.cells import is_whole, settings
from oso_dp.analysis.keys import ALIKE, CELL
from oso_dp.analysis.study import Study
from oso_dp.metrics import sign

VALUES = ["mean", "last_mean", "cross_mean"]


def rule_gains(study: Study) -> pd.DataFrame:
    """One row per grid: its value by each rule, and what the paper's adds over the two others.

    Printed unit. adds_*: positive where the paper's rule makes a grid look better. whole: whether
    all points of the grid were run.
    """
    return _gains(study)[_COLUMNS]


def contests(study: Study) -> list[pd.DataFrame]:
    """The rows of `rule_gains` that compete: of private methods at one budget of one data set.

    Of whole grids alone, and of runs that are alike and not shorter than the paper's.
    """
    rows = _gains(study)
    long = [is_whole(row["dataset"], row["epochs"]) for row in rows.to_dict("records")]
    rows = rows[rows["whole"].astype(bool) & np.array(long, dtype=bool)]
    groups = rows.groupby(["dataset", "k", "epsilon", *ALIKE])
    return [alike for _, alike in groups if len(alike) > 1]


_COLUMNS = [
    *(*CELL, "metric", "unit", "seeds", *VALUES),
    *("adds_over_last", "adds_over_cross", "whole"),
]


def _gains(study: Study) -> pd.DataFrame:
    """With the columns `ALIKE`."""
    frames = [judged_cells(study, dataset, k) for dataset, k in settings(study)]
    if not frames:  # nothing was searched by composition
        return pd.DataFrame(columns=[*_COLUMNS, *ALIKE])
    cells = pd.concat(frames)
    cells = cells.dropna(subset=VALUES).reset_index(drop=True)
    direction = cells["metric"].map(sign).astype(float)  # also where there is none
    for rule in ("last", "cross"):
        cells[f"adds_over_{rule}"] = (cells["mean"] - cells[f"{rule}_mean"]) * direction
    cells["whole"] = [is_whole_grid(row) for row in cells.to_dict("records")]
    return cells[[*_COLUMNS, *ALIKE]]
