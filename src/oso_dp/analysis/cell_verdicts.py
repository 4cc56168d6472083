"""What is to be said of each cell: of its value beside the paper's, and of its best grid point."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import COLUMNS, POINT_TOLERANCE, TablePanel, has_paper_length, make_cells
from oso_dp.analysis.verdicts import Comparison, Sample
from oso_dp.analysis.result_set import ResultSet
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import SEEDS


def judge_cells(study: ResultSet, dataset: str, k: int) -> pd.DataFrame:
    """The cells of a data set at a k with their verdicts, columns `cells.COLUMNS`."""
    judged = study.cache_table(
        "judged cells", lambda: _group_by_panel(_judge_frame(make_cells(study)))
    )
    return judged.get((dataset, k), pd.DataFrame(columns=COLUMNS)).copy()


def _group_by_panel(frame: pd.DataFrame) -> dict[TablePanel, pd.DataFrame]:
    groups = frame.groupby(["dataset", "k"])
    return {(name, int(k)): section.reset_index(drop=True) for (name, k), section in groups}


def _judge_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Judge all printed values that were run together, across tables (one correction).

    Values of runs that are shorter than the paper's, or have a schedule or averaging, are not
    judged and stay undecided.
    """
    rows = frame.to_dict("records")
    pairs = [_verdicts(row) if row["in_paper"] else (None, None) for row in rows]
    values, halves = [value for value, _ in pairs], [math.nan] * len(rows)
    places = [
        place
        for place, (value, row) in enumerate(zip(values, rows, strict=True))
        if value == verdicts.UNDECIDED and has_paper_length(row["dataset"], row["epochs"])
    ]
    places = [place for place in places if not rows[place]["variant"]]
    together = verdicts.judge([_comparison(rows[place]) for place in places])
    for place, verdict in zip(places, together, strict=True):
        row = rows[place]
        short = verdict == verdicts.WORSE and not is_comparable_with_paper(row)
        values[place] = verdicts.UNDECIDED if short else verdict
        gap = verdicts.difference([_compare_with_paper(row)])
        halves[place] = math.nan if gap is None else gap.half
    words = {"verdict": values, "point_verdict": [point for _, point in pairs]}
    columns = {name: np.array(column, dtype=object) for name, column in words.items()}
    return frame.assign(difference_half=halves, **columns)


def is_comparable_with_paper(row: Mapping) -> bool:
    """Whether a value is comparable with the paper's.

    It needs a complete grid, or a run at the paper's best point, and no schedule or averaging: a
    point that was not run could be as good as the paper's.
    """
    return not row["variant"] and (is_complete_grid(row) or bool(pd.notna(row["at_paper_seeds"])))


def _compare_with_paper(row: Mapping) -> tuple[Sample, Sample]:
    return Sample.of(row), Sample(row["paper_mean"], row["paper_std"], SEEDS)


def _comparison(row: Mapping) -> Comparison:
    better = is_higher_better(row["metric"])
    return verdicts.make_comparison(row["dataset"], *_compare_with_paper(row), better)


def _verdicts(row: Mapping) -> tuple[str, str]:
    """On the value, and on the hyperparameters."""
    if row["status"] == "not run":
        return verdicts.NOT_RUN, verdicts.NOT_RUN
    if row["variant"]:  # another method than the paper's
        return verdicts.UNDECIDED, verdicts.UNDECIDED
    if row["paper_diverged"]:
        if row["diverged"] < row["runs"]:
            return verdicts.TRAINS, verdicts.TRAINS
        complete = is_complete_grid(row)
        return (verdicts.CONSISTENT if complete else verdicts.INCOMPLETE,) * 2
    if row["status"] == "diverged":
        return verdicts.DIVERGED, verdicts.DIVERGED
    if pd.isna(row["paper_mean"]):
        return verdicts.NO_VALUE, _point_verdict(row)
    return verdicts.UNDECIDED, _point_verdict(row)  # until all values are judged


def _point_verdict(row: Mapping) -> str:
    if not is_complete_grid(row):
        return verdicts.INCOMPLETE
    names = labels.searched_axes(row["method"])
    if all(np.isclose(row[n], row[f"paper_{n}"], rtol=POINT_TOLERANCE, atol=0) for n in names):
        return verdicts.SAME
    if pd.isna(row["at_paper_mean"]):  # all its runs diverged
        return verdicts.OTHER
    there = Sample(row["at_paper_mean"], row["at_paper_std"], int(row["at_paper_seeds"]))
    gap = verdicts.difference([(there, Sample.of(row))])
    if gap is None:
        return verdicts.UNDECIDED
    return verdicts.AS_GOOD if gap.low <= 0 <= gap.high else verdicts.OTHER


def is_incomplete_grid(row: Mapping) -> bool:
    """Whether points of this cell's grid have no run; False where the grid's size is unknown."""
    return bool(pd.notna(row["grid_size"]) and row["grid_points"] < row["grid_size"])


def is_complete_grid(row: Mapping) -> bool:
    """Whether all points of this cell's grid have a run; False where its size is unknown."""
    return bool(pd.notna(row["grid_size"]) and row["grid_points"] >= row["grid_size"])
