"""Verdicts on cells: equivalence tests (TOST), Welch intervals and Benjamini-Hochberg correction.

docs/reproduction/verdicts.md gives the reasons. A value needs `SEEDS_NEEDED` seeds. It is
consistent with another if the 90 % interval of their difference lies inside the data set's margin
(two one-sided tests at 5 %). Else it is better or worse if the difference is significant after the
correction for all values that are judged together (Benjamini and Hochberg, 5 %). Else it is
undecided. Where the margin is a factor, values are compared as logarithms.

The 95 % interval of a difference of means is Welch's: from both standard deviations (n - 1) and
both numbers of seeds. A single seed has no standard deviation: it takes the one of the other side,
with that side's degrees of freedom. If neither side has one, there is no interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit
from scipy.stats import false_discovery_control

from oso_dp import labels
from oso_dp.analysis.cells import (
    COLUMNS,
    DIVERGED,
    NOT_RUN,
    POINT_TOLERANCE,
    TablePanel,
    has_paper_length,
    make_cells,
)
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.values import CELL
from oso_dp.data.catalogue import DATASETS, DatasetSpec
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import paper_tables

LEVEL = 0.95  # of a reported interval
EQUIVALENCE_LEVEL = 0.90  # of the interval that must lie inside the margin
FALSE_DISCOVERY_RATE = 0.05
SEEDS_NEEDED = 3


def margin_of(dataset: str) -> float:
    """The data set's equivalence margin, of logarithms if it is a factor; 0 without a margin.

    With margin 0 no two values are consistent, but one may still be better than another.
    """
    spec = DATASETS.get(dataset)
    if spec is None or spec.margin is None:
        return 0.0
    return math.log(spec.margin) if spec.margin_is_factor else spec.margin


def compares_ratios(dataset: str) -> bool:
    """Whether values are compared as logarithms, so that the margin is a factor."""
    return dataset in DATASETS and DATASETS[dataset].margin_is_factor


def _margin_text(spec: DatasetSpec) -> str:
    return f"a factor of {spec.margin:g}" if spec.margin_is_factor else f"±{spec.margin:g}"


CONSISTENT = "consistent"
BETTER = "better"
WORSE = "worse"
TRAINS = "trains"  # ours, where the paper prints that all runs diverge
NO_VALUE = "no value printed"
UNDECIDED = "undecided"

SAME = "same point"
AS_GOOD = "as good"
OTHER = "another point"
INCOMPLETE = "incomplete grid"

VALUE_RULE = (
    f"Verdict: “{UNDECIDED}” with fewer than {SEEDS_NEEDED} seeds; “{CONSISTENT}” where the 90 % "
    "interval of ours − paper (Welch's) lies inside the data set's equivalence margin ("
    + ", ".join(f"{_margin_text(s)} on {s.title}" for s in DATASETS.values() if s.in_paper)
    + f"); else “{BETTER}” or “{WORSE}” where the difference is significant at 5 % after Benjamini "
    f"and Hochberg's correction for all printed values that are judged (not “{WORSE}” where the "
    f"grid is incomplete and lacks the paper's point); else “{UNDECIDED}”."
)
POINT_RULE = (
    "Where the paper prints hyperparameters only, they are judged: “same point”; “as good” where "
    "our runs at the paper's point are no worse than our best point by the same interval; else "
    "“another point”. This needs a complete grid; else “incomplete grid”."
)


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation of runs that differ in their seeds."""

    mean: float
    std: float  # n - 1; NaN for one seed
    seeds: int

    @classmethod
    def of(cls, row: Mapping, column: str = "{}") -> "Sample":
        """From a row's columns `mean`, `std` and `seeds`; column: the form of their names."""
        mean, std, seeds = (row[column.format(name)] for name in ("mean", "std", "seeds"))
        return cls(mean, std, int(seeds))


@dataclass(frozen=True)
class Difference:
    """A difference of means with its 95 % interval, mean ± half."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


@dataclass(frozen=True)
class Comparison:
    """A value and its reference, both in the unit of the margin."""

    compared: Sample
    reference: Sample
    margin: float
    higher_is_better: bool


def make_comparison(
    dataset: str, compared: Sample, reference: Sample, higher_is_better: bool
) -> Comparison:
    """Compare two values in the printed unit, on the scale of the data set's margin."""
    one, other = (scale_to_margin(dataset, side) for side in (compared, reference))
    return Comparison(one, other, margin_of(dataset), higher_is_better)


def scale_to_margin(dataset: str, sample: Sample) -> Sample:
    """The sample on the scale of the data set's margin: the logarithm if it is a factor.

    The logarithm's standard deviation is the value's divided by its mean.
    """
    if not compares_ratios(dataset):
        return sample
    return Sample(math.log(sample.mean), sample.std / sample.mean, sample.seeds)


def margin_near(dataset: str, value: float) -> float:
    """The data set's margin in the printed unit, at a value."""
    margin = margin_of(dataset)
    return value * math.expm1(margin) if compares_ratios(dataset) else margin


def difference(pairs: Sequence[tuple[Sample, Sample]], level: float = LEVEL) -> Difference | None:
    """The mean over pairs (a, b) of a - b with its interval.

    None if a pair has no standard deviation on either side. Variances add up, degrees of freedom
    are Welch and Satterthwaite's, and pairs are assumed to be independent.
    """
    known = _welch(pairs)
    if known is None:
        return None
    mean, error, freedom = known
    half = 0.0 if error == 0 else float(stdtrit(freedom, (1 + level) / 2)) * error
    return Difference(mean, half)


def average_over_grids(samples: Sequence[Sample]) -> Sample:
    """A method's values in several grids as one sample: each seed's mean over the grids.

    A seed starts the runs of all grids from the same weights, so their errors are correlated to an
    unknown degree. The standard deviation is therefore the mean of the grids' standard deviations,
    an upper bound that is reached under full correlation.
    """
    count = len(samples)
    return Sample(
        sum(one.mean for one in samples) / count,
        sum(one.std for one in samples) / count,
        min(one.seeds for one in samples),
    )


def judge(comparisons: Sequence[Comparison]) -> list[str]:
    """`CONSISTENT`, `BETTER`, `WORSE` or `UNDECIDED` for each comparison, corrected together."""
    chances = [p_value(comparison.compared, comparison.reference) for comparison in comparisons]
    enough = [
        min(comparison.compared.seeds, comparison.reference.seeds) >= SEEDS_NEEDED
        for comparison in comparisons
    ]
    judged = [chance for chance, usable in zip(chances, enough, strict=True) if usable]
    corrected = iter(false_discovery_control(judged) if judged else ())
    return [
        _verdict(comparison, float(next(corrected))) if usable else UNDECIDED
        for comparison, usable in zip(comparisons, enough, strict=True)
    ]


def _verdict(comparison: Comparison, corrected: float) -> str:
    gap = difference([(comparison.compared, comparison.reference)], EQUIVALENCE_LEVEL)
    assert gap is not None  # enough seeds on either side
    if -comparison.margin < gap.low and gap.high < comparison.margin:
        return CONSISTENT
    if corrected > FALSE_DISCOVERY_RATE:
        return UNDECIDED
    return BETTER if (gap.mean > 0) == comparison.higher_is_better else WORSE


def p_value(first: Sample, second: Sample) -> float:
    """Two-sided p-value of Welch's test; 1 if no standard deviation is known."""
    known = _welch([(first, second)])
    if known is None:
        return 1.0
    mean, error, freedom = known
    if error == 0:
        return float(mean == 0)
    return 2 * float(stdtr(freedom, -abs(mean) / error))


def _welch(pairs: Sequence[tuple[Sample, Sample]]) -> tuple[float, float, float] | None:
    """The mean difference over pairs, its standard error and its degrees of freedom."""
    total, terms = 0.0, []
    for first, second in pairs:
        total += first.mean - second.mean
        for one, other in ((first, second), (second, first)):
            known = one if one.seeds > 1 else other
            if known.seeds < 2:
                return None
            terms.append((known.std**2 / one.seeds, known.seeds - 1))
        # One standard deviation is used for both sides: count it once.
        if min(first.seeds, second.seeds) < 2:
            variance_fraction = terms.pop()[0] + terms[-1][0]
            terms[-1] = (variance_fraction, terms[-1][1])
    variance = sum(v for v, _ in terms)
    if variance == 0:
        return total / len(pairs), 0.0, math.inf
    freedom = variance**2 / sum(v**2 / n for v, n in terms)
    return total / len(pairs), math.sqrt(variance) / len(pairs), freedom


def judge_cells(study: ResultSet, dataset: str, k: int) -> pd.DataFrame:
    """The cells of a data set at a k with their verdicts, columns `cells.COLUMNS`."""
    return _judged_panels(study).get((dataset, k), pd.DataFrame(columns=COLUMNS)).copy()


def judge_paper_cells(study: ResultSet) -> pd.DataFrame:
    """As `judge_cells`, of all tables of the paper, one after the other."""
    return pd.concat([judge_cells(study, table.dataset, table.k) for table in paper_tables()])


@cached_per_study
def _judged_panels(study: ResultSet) -> dict[TablePanel, pd.DataFrame]:
    groups = _judge_frame(make_cells(study)).groupby(["dataset", "k"])
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
        if value == UNDECIDED and has_paper_length(row["dataset"], row["epochs"])
    ]
    places = [place for place in places if not rows[place]["variant"]]
    together = judge([_comparison(rows[place]) for place in places])
    for place, verdict in zip(places, together, strict=True):
        row = rows[place]
        short = verdict == WORSE and not is_comparable_with_paper(row)
        values[place] = UNDECIDED if short else verdict
        gap = difference([_compare_with_paper(row)])
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
    return Sample.of(row), Sample.of(row, "paper_{}")


def _comparison(row: Mapping) -> Comparison:
    better = is_higher_better(row["metric"])
    return make_comparison(row["dataset"], *_compare_with_paper(row), better)


def _verdicts(row: Mapping) -> tuple[str, str]:
    """On the value, and on the hyperparameters."""
    if row["status"] == NOT_RUN:
        return NOT_RUN, NOT_RUN
    if row["variant"]:  # another method than the paper's
        return UNDECIDED, UNDECIDED
    if row["paper_diverged"]:
        if row["diverged"] < row["runs"]:
            return TRAINS, TRAINS
        complete = is_complete_grid(row)
        return (CONSISTENT if complete else INCOMPLETE,) * 2
    if row["status"] == DIVERGED:
        return DIVERGED, DIVERGED
    if pd.isna(row["paper_mean"]):
        return NO_VALUE, _point_verdict(row)
    return UNDECIDED, _point_verdict(row)  # until all values are judged


def _point_verdict(row: Mapping) -> str:
    if not is_complete_grid(row):
        return INCOMPLETE
    names = labels.searched_axes(row["method"])
    if all(np.isclose(row[n], row[f"paper_{n}"], rtol=POINT_TOLERANCE, atol=0) for n in names):
        return SAME
    if pd.isna(row["at_paper_mean"]):  # all its runs diverged
        return OTHER
    gap = difference([(Sample.of(row, "at_paper_{}"), Sample.of(row))])
    if gap is None:
        return UNDECIDED
    return AS_GOOD if gap.low <= 0 <= gap.high else OTHER


def is_incomplete_grid(row: Mapping, end: str = "") -> bool:
    """Whether points of this cell's grid have no run; False where the grid's size is unknown.

    end: of the columns' names, in a row that holds two cells.
    """
    size = row[f"grid_size{end}"]
    return bool(pd.notna(size) and row[f"grid_points{end}"] < size)


def is_complete_grid(row: Mapping, end: str = "") -> bool:
    """Whether all points of this cell's grid have a run; False where its size is unknown."""
    size = row[f"grid_size{end}"]
    return bool(pd.notna(size) and row[f"grid_points{end}"] >= size)


# The momentum, which the paper does not give, was chosen to fit this cell
# (docs/reproduction/ambiguities.md, row 1): its agreement with the paper is not evidence.
MOMENTUM_CALIBRATION_CELL = ("mnist", 9, 9.0, "fixed_threshold")

MATRIX_COLUMNS = ["table", *CELL, "unit", "verdict", "seeds", "difference", "difference_half"]


def verdict_matrix(study: ResultSet) -> pd.DataFrame:
    """One row for each private cell of the paper, columns `MATRIX_COLUMNS` and `chose_momentum`.

    verdict: on the value, or on the hyperparameters where the paper prints no value (k = 7). seeds:
    of our best point, 0 if nothing was run. difference: ours - paper, in the printed unit, with
    half of its 95 % interval; NaN without one.
    """
    cells = judge_paper_cells(study)
    cells = cells[cells["in_paper"] & cells["epsilon"].notna()]
    cells["verdict"] = overall_verdict(cells)
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    keys = cells[CELL].itertuples(index=False, name=None)
    cells["chose_momentum"] = [key == MOMENTUM_CALIBRATION_CELL for key in keys]
    return cells[[*MATRIX_COLUMNS, "chose_momentum"]].reset_index(drop=True)


def overall_verdict(cells: pd.DataFrame) -> pd.Series:
    """The verdict on a cell's value, or on its hyperparameters where no value is printed."""
    return cells["verdict"].mask(cells["verdict"] == NO_VALUE, cells["point_verdict"])
