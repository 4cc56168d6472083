"""What is to be said of each cell: of its value beside the paper's, and of its best grid point."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import COLUMNS, SAME_POINT, Setting, cells, is_whole
from oso_dp.analysis.study import Study
from oso_dp.analysis.verdicts import Comparison, Sample
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import SEEDS


def judged_cells(study: Study, dataset: str, k: int) -> pd.DataFrame:
    """The cells of a data set at a k with their verdicts, columns `cells.COLUMNS`."""
    judged = study.once("judged cells", lambda: _by_setting(_judged(cells(study))))
    return judged.get((dataset, k), pd.DataFrame(columns=COLUMNS)).copy()


def _by_setting(frame: pd.DataFrame) -> dict[Setting, pd.DataFrame]:
    groups = frame.groupby(["dataset", "k"])
    return {(name, int(k)): section.reset_index(drop=True) for (name, k), section in groups}


def _judged(frame: pd.DataFrame) -> pd.DataFrame:
    """All printed values that were run are judged together, whichever table they stand in.

    Those of runs that are shorter than the paper's, or have something laid over their steps, are
    not, and stay undecided.
    """
    rows = frame.to_dict("records")
    pairs = [_verdicts(row) if row["in_paper"] else (None, None) for row in rows]
    values, halves = [value for value, _ in pairs], [math.nan] * len(rows)
    places = [
        place
        for place, (value, row) in enumerate(zip(values, rows, strict=True))
        if value == verdicts.UNDECIDED and is_whole(row["dataset"], row["epochs"])
    ]
    places = [place for place in places if not rows[place]["laid"]]
    together = verdicts.judge([_comparison(rows[place]) for place in places])
    for place, verdict in zip(places, together, strict=True):
        row = rows[place]
        short = verdict == verdicts.WORSE and not says_how_good(row)
        values[place] = verdicts.UNDECIDED if short else verdict
        gap = verdicts.difference([_beside_the_papers(row)])
        halves[place] = math.nan if gap is None else gap.half
    words = {"verdict": values, "point_verdict": [point for _, point in pairs]}
    columns = {name: np.array(column, dtype=object) for name, column in words.items()}
    return frame.assign(difference_half=halves, **columns)


def says_how_good(row: Mapping) -> bool:
    """Whether a value may be held against the paper's: of a whole grid, or with the paper's point;
    with nothing laid over the steps.

    What was not run of a part could be as good as the paper's: its own point above all.
    """
    return not row["laid"] and (is_whole_grid(row) or bool(pd.notna(row["at_paper_seeds"])))


def _beside_the_papers(row: Mapping) -> tuple[Sample, Sample]:
    return Sample.of(row), Sample(row["paper_mean"], row["paper_std"], SEEDS)


def _comparison(row: Mapping) -> Comparison:
    better = is_higher_better(row["metric"])
    return verdicts.compare(row["dataset"], *_beside_the_papers(row), better)


def _verdicts(row: Mapping) -> tuple[str, str]:
    """On the value, and on the hyperparameters."""
    if row["status"] == "not run":
        return verdicts.NOT_RUN, verdicts.NOT_RUN
    if row["laid"]:  # another method than the paper's
        return verdicts.UNDECIDED, verdicts.UNDECIDED
    if row["paper_diverged"]:
        lost = verdicts.CONSISTENT if is_whole_grid(row) else verdicts.PART
        return (verdicts.TRAINS if row["diverged"] < row["runs"] else lost,) * 2
    if row["status"] == "diverged":
        return verdicts.DIVERGED, verdicts.DIVERGED
    if pd.isna(row["paper_mean"]):
        return verdicts.NO_VALUE, _point_verdict(row)
    return verdicts.UNDECIDED, _point_verdict(row)  # until all values are judged


def _point_verdict(row: Mapping) -> str:
    if not is_whole_grid(row):
        return verdicts.PART
    names = labels.tuned(row["method"])
    if all(np.isclose(row[n], row[f"paper_{n}"], rtol=SAME_POINT, atol=0) for n in names):
        return verdicts.SAME
    if pd.isna(row["at_paper_mean"]):  # all its runs diverged
        return verdicts.OTHER
    there = Sample(row["at_paper_mean"], row["at_paper_std"], int(row["at_paper_seeds"]))
    gap = verdicts.difference([(there, Sample.of(row))])
    if gap is None:
        return verdicts.UNDECIDED
    return verdicts.AS_GOOD if gap.low <= 0 <= gap.high else verdicts.OTHER


def is_part_of_grid(row: Mapping) -> bool:
    """Whether points of this cell's grid have no run: where nobody knows its size, none is known to
    lack one."""
    return bool(pd.notna(row["grid_size"]) and row["grid_points"] < row["grid_size"])


def is_whole_grid(row: Mapping) -> bool:
    """Whether all points of this cell's grid have a run."""
    return bool(pd.notna(row["grid_size"]) and row["grid_points"] >= row["grid_size"])
