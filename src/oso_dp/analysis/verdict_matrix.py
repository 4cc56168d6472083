"""The verdict matrix: one verdict for each private cell of the paper's tables."""

import pandas as pd

from oso_dp.analysis import verdicts
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.analysis.values import CELL
from oso_dp.analysis.result_set import ResultSet
from oso_dp.paper.tables import paper_tables

# The momentum, which the paper does not give, was chosen to fit this cell
# (docs/reproduction/ambiguities.md, row 1): its agreement with the paper is not evidence.
MOMENTUM_CALIBRATION_CELL = ("mnist", 9, 9.0, "fixed_threshold")

COLUMNS = ["table", *CELL, "unit", "verdict", "seeds", "difference", "difference_half"]


def verdict_matrix(study: ResultSet) -> pd.DataFrame:
    """One row for each private cell of the paper, columns `COLUMNS` and `chose_momentum`.

    verdict: on the value, or on the hyperparameters where the paper prints no value (k = 7). seeds:
    of our best point, 0 if nothing was run. difference: ours - paper, in the printed unit, with
    half of its 95 % interval; NaN without one.
    """
    frames = [judge_cells(study, table.dataset, table.k) for table in paper_tables()]
    cells = pd.concat([frame[frame["in_paper"] & frame["epsilon"].notna()] for frame in frames])
    cells["verdict"] = overall_verdict(cells)
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    keys = cells[CELL].itertuples(index=False, name=None)
    cells["chose_momentum"] = [key == MOMENTUM_CALIBRATION_CELL for key in keys]
    return cells[[*COLUMNS, "chose_momentum"]].reset_index(drop=True)


def overall_verdict(cells: pd.DataFrame) -> pd.Series:
    """The verdict on a cell's value, or on its hyperparameters where no value is printed."""
    return cells["verdict"].mask(
        cells["verdict"] == verdicts.NO_VALUE, cells["point_verdict"]
    )
