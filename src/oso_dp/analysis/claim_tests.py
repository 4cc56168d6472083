"""Claim tests: from results to a verdict on a claim, with intervals and equivalence margins.

A claim about two methods is a range for A, the mean advantage of one over the other. A is averaged
over the grids (k and epsilon) of one data set in which both have a value from two or more seeds;
its 95 % interval is Welch's, over seeds and not over grids (`verdicts`). If the grid of
either method is incomplete, both values are those at the paper's best points: a best over more
points is larger by their number alone. Runs that differ between the methods in precision, length
or delta, or are shorter than the paper's, are left out.

The claim holds if the interval lies inside the range, does not hold if it lies outside, and is
undecided otherwise, or if too few of the paper's grids are usable. M, the margin of "on a par", is
the data set's equivalence margin; where that is a factor, A is the logarithm of the ratio of the
two errors, and the text gives the ratio. The text also gives A at each epsilon.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cells import DIVERGED, NOT_RUN, has_paper_length
from oso_dp.analysis.values import COMPARABLE_ON
from oso_dp.analysis.verdicts import (
    UNDECIDED,
    Difference,
    Sample,
    average_over_grids,
    compares_ratios,
    difference,
    is_complete_grid,
    margin_of,
    scale_to_margin,
)
from oso_dp.metrics import metric_direction
from oso_dp.paper.tables import paper_results

HOLDS = "holds"
FAILS = "does not hold"
_MAX_SEEDS_TO_DECIDE = 1000
NOT_APPLICABLE = labels.DASH  # the test needs data that are not given

# The claimed relation of one method to another -> the range of A, from the margin M.
RELATION_RANGES: dict[str, Callable[[float], tuple[float, float]]] = {
    "at least as good as": lambda margin: (-margin, math.inf),
    "on a par with": lambda margin: (-margin, margin),
    # Above 0, not at 0: if no value varies, the interval may be exactly 0.
    "better than": lambda margin: (math.nextafter(0.0, 1.0), math.inf),
    "no better than": lambda margin: (-math.inf, margin),
}

CELLS = ["dataset", "k", "epsilon", "method", "metric", "status", "mean", "std", "seeds"]
RUNS = [
    "runs",
    "diverged",
    "grid_points",
    "grid_size",
    *COMPARABLE_ON,
    "variant",
]  # columns of our cells only
_CELL_KIND = [*COMPARABLE_ON, "distribution"]  # equal in our cells that are compared
# Our value at the paper's best point.
PAPER_POINT_COLUMNS = ["at_paper_mean", "at_paper_std", "at_paper_seeds"]


@dataclass(frozen=True)
class ClaimData:
    """The data of a claim test: cells (printed unit) with `CELLS`, ours also with `RUNS`; our runs.

    The other fields: None where unknown or not applicable.
    """

    cells: pd.DataFrame
    runs: pd.DataFrame | None = None
    step_times: pd.DataFrame | None = None
    cosine: pd.DataFrame | None = None  # see `side_measurements.COSINES`
    untuned: pd.DataFrame | None = None  # see `untuned_runs.win_ranges`
    values: pd.DataFrame | None = None  # of every variant, see `ResultSet.values`
    update_norms: pd.DataFrame | None = None  # see `side_measurements.UPDATE_NORMS`

    def require_rows(self, dataset: str, method: str, design: frozenset[tuple]) -> pd.DataFrame:
        """The cells of a method that were run, at the pairs of k and epsilon in `design`."""
        cells = self._has_rows.get((dataset, method))
        if cells is None:
            return self.cells.iloc[:0]
        inside = [pair in design for pair in zip(cells["k"], cells["epsilon"], strict=True)]
        return cells[np.array(inside, dtype=bool)]

    @cached_property
    def _has_rows(self) -> dict[tuple, pd.DataFrame]:
        """The cells that were run, by data set and method."""
        ran = self.cells[self.cells["status"] != NOT_RUN]
        return dict(iter(ran.groupby(["dataset", "method"])))


@dataclass(frozen=True)
class ClaimResult:
    """A verdict, its evidence in words, and the numbers behind it."""

    verdict: str
    text: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


ClaimTest = Callable[[ClaimData, str], ClaimResult]  # the str is the data set


def classify(advantage: Difference, low: float, high: float) -> str:
    """The verdict on the claim that a difference lies between low and high."""
    if low <= advantage.low and advantage.high <= high:
        return HOLDS
    return FAILS if advantage.high < low or advantage.low > high else UNDECIDED


def compare_methods(
    method: str,
    claimed: str,
    baseline: str,
    ks: Iterable[int] = (),
    epsilons: Iterable[float] = (),
    at_least: float = 0.5,
) -> ClaimTest:
    """Make the test of a relation between two methods, such as "better than".

    Args:
        method: The method that the claim is about.
        claimed: A key of `RELATION_RANGES`.
        baseline: The method that it is compared with.
        ks: Only the paper's grids with these k; empty for all.
        epsilons: Only the paper's grids with these epsilons; empty for all.
        at_least: Fraction of the grids that must be usable; with fewer, the claim is undecided.

    Returns:
        The test.
    """

    some_k, some_epsilon = frozenset(ks), frozenset(epsilons)

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        design = _design(dataset, some_k, some_epsilon) or _pairs(evidence.cells, dataset)
        one, other = (evidence.require_rows(dataset, m, design) for m in (method, baseline))
        absent = [
            labels.method_label(m) for m, rows in ((method, one), (baseline, other)) if rows.empty
        ]
        if absent:
            return ClaimResult(NOT_RUN, f"no grid of {' and '.join(absent)}")
        both = one.merge(other, on=["k", "epsilon"], suffixes=("", "_baseline"))
        if both.empty:
            return ClaimResult(NOT_RUN, "no grid of both")
        both = _use_paper_points(both)
        alike = _find_alike(both)
        both, unlike = both[alike], int((~alike).sum())
        usable = both[(both["seeds"] > 1) & (both["seeds_baseline"] > 1)]
        usable = usable.dropna(subset=["mean", "mean_baseline"])
        says = _unused_rows_text(both, usable, method, baseline)
        if unlike:
            says.append(
                f"{unlike} whose runs differ in precision, length or delta, or are too short"
            )
        if usable.empty:
            return ClaimResult(UNDECIDED, "; ".join(says))
        sides = _sides(usable)
        advantage = _advantage(usable)
        margin = margin_of(dataset)
        bounds = RELATION_RANGES[claimed](margin)
        verdict = classify(advantage, *bounds)
        if verdict == UNDECIDED and -margin <= advantage.low and advantage.high <= margin:
            says.append("equivalent within M")
        elif verdict == UNDECIDED:
            says.append(_seeds_to_decide(sides, advantage.mean, bounds))
        if len(usable) < at_least * len(design):
            verdict = UNDECIDED
            says.append(f"too few grids: {math.ceil(at_least * len(design))} would decide")
        ratio = compares_ratios(dataset)
        metric = usable["metric"].iloc[0]
        unit = "times its error" if ratio else labels.difference_unit(metric)
        text = (
            f"{labels.method_label(method)} over {labels.method_label(baseline)} "
            f"{_interval(advantage, ratio, unit)}, "
            f"M = {f'{math.exp(margin):.2f} times' if ratio else f'{margin:.2f}'}, "
            f"{len(usable)} of {len(design)} grids"
        )
        points = int(usable["at_paper"].sum())
        text += f" ({points} at the paper's best points)" if points else ""
        numbers = {"advantage": advantage.mean, "low": advantage.low, "high": advantage.high}
        numbers |= {"margin": margin, "grids": len(usable), "of_grids": len(design)}
        numbers |= {"at_paper": points}
        return ClaimResult(verdict, "; ".join([text, *_by_epsilon(usable, ratio), *says]), numbers)

    return judge


def _by_epsilon(usable: pd.DataFrame, ratio: bool) -> list[str]:
    """The advantage at each epsilon, if there are several."""
    reasons = [
        f"{epsilon:g}: {_interval(_advantage(rows), ratio)}"
        for epsilon, rows in usable.groupby("epsilon")
    ]
    return [f"by ε {', '.join(reasons)}"] if len(reasons) > 1 else []


def _interval(advantage: Difference, ratio: bool, unit: str = "") -> str:
    """An advantage with its interval; for a logarithm, the ratio of the errors."""
    if ratio:
        ends = advantage.mean, advantage.high, advantage.low
        mean, low, high = (f"{math.exp(-end):.2f}" for end in ends)
    else:
        mean, low, high = map(labels.format_signed, (advantage.mean, advantage.low, advantage.high))
    return f"{mean}{f' {unit}' if unit else ''} [{low}, {high}]"


def _seeds_to_decide(
    sides: tuple[Sample, Sample], advantage: float, bounds: tuple[float, float]
) -> str:
    """The number of seeds of each method that would decide, at these means and deviations."""
    distance = min(abs(advantage - end) for end in bounds if math.isfinite(end))

    def too_wide(seeds: int) -> bool:
        one, other = (replace(side, seeds=seeds) for side in sides)
        interval = difference([(one, other)])
        return interval is None or interval.half > distance

    needed = 2 + bisect_left(
        range(2, _MAX_SEEDS_TO_DECIDE + 1), True, key=lambda n: not too_wide(n)
    )
    if needed > _MAX_SEEDS_TO_DECIDE:
        return f"more than {_MAX_SEEDS_TO_DECIDE} seeds would be needed to decide"
    there = (sides[0].seeds + sides[1].seeds) / 2
    return f"about {needed} seeds would decide, {there:.2g} are there"


@cache
def _design(dataset: str, ks: frozenset[int], epsilons: frozenset[float]) -> frozenset[tuple]:
    """The paper's pairs of k and epsilon for a data set, optionally restricted."""
    paper = paper_results()
    pairs = paper.loc[paper["dataset"] == dataset, ["k", "epsilon"]].dropna()
    return frozenset(
        (k, epsilon)
        for k, epsilon in pairs.itertuples(index=False)
        if (not ks or k in ks) and (not epsilons or epsilon in epsilons)
    )


def _pairs(cells: pd.DataFrame, dataset: str) -> frozenset[tuple]:
    """The pairs of k and epsilon that were run, for a data set that is not in the paper."""
    of_dataset = cells[(cells["dataset"] == dataset) & cells["epsilon"].notna()]
    return frozenset(zip(of_dataset["k"], of_dataset["epsilon"], strict=True))


def _advantage(usable: pd.DataFrame) -> Difference:
    advantage = difference([_sides(usable)])
    assert advantage is not None  # two seeds or more on either side
    return advantage


def _sides(usable: pd.DataFrame) -> tuple[Sample, Sample]:
    """Both methods over these grids, higher is better, on the scale of the margin."""
    values, others = zip(*map(_pair, usable.to_dict("records")), strict=True)
    return average_over_grids(values), average_over_grids(others)


def _pair(row: dict) -> tuple[Sample, Sample]:
    pair = Sample.of(row), Sample.of(row, "{}_baseline")
    direction = metric_direction(row["metric"])
    one, other = (
        replace(scaled, mean=direction * scaled.mean)
        for scaled in (scale_to_margin(row["dataset"], sample) for sample in pair)
    )
    return one, other


def _use_paper_points(both: pd.DataFrame) -> pd.DataFrame:
    """Use the values at the paper's points (`at_paper`) unless both grids are complete."""
    if (
        "grid_points" not in both
    ):  # the paper's values and those of random stopping have complete grids
        return both.assign(at_paper=False)
    whole = pd.Series(
        [
            all(is_complete_grid(row, end) for end in ("", "_baseline"))
            for row in both.to_dict("records")
        ],
        index=both.index,
        dtype=bool,
    )
    at_paper = {
        f"{name}{end}": both[f"{name}{end}"].where(whole, both[f"at_paper_{name}{end}"])
        for name in ("mean", "std", "seeds")
        for end in ("", "_baseline")
    }
    seeds = {name: at_paper[name].fillna(0) for name in ("seeds", "seeds_baseline")}
    return both.assign(at_paper=~whole, **at_paper | seeds)


def _find_alike(both: pd.DataFrame) -> pd.Series:
    """Mask of the pairs of cells that are comparable.

    Both have the same precision, length, delta and distribution of K, are not shorter than the
    paper's runs and have no schedule or averaging. Unknown columns count as equal.
    """
    known = [name for name in _CELL_KIND if name in both]

    def is_alike(row: dict) -> bool:
        plain = not (row.get("variant") or row.get("variant_baseline"))
        same = all(row[name] == row[f"{name}_baseline"] for name in known)
        return (
            plain
            and same
            and ("epochs" not in known or has_paper_length(row["dataset"], row["epochs"]))
        )

    return pd.Series(map(is_alike, both.to_dict("records")), index=both.index, dtype=bool)


def _unused_rows_text(
    both: pd.DataFrame, usable: pd.DataFrame, method: str, baseline: str
) -> list[str]:
    """Which cells were run but are not in the mean, and why."""
    says = []
    for name, column in ((method, "status"), (baseline, "status_baseline")):
        lost = int((both[column] == DIVERGED).sum())
        if lost:
            says.append(f"{labels.method_label(name)} diverged in {lost} more")
    valued = both.dropna(subset=["mean", "mean_baseline"])
    gone = (both["status"] == DIVERGED) | (both["status_baseline"] == DIVERGED)
    part = int((~gone & ~both.index.isin(valued.index)).sum())
    if part:
        says.append(f"{part} incomplete, without the paper's point")
    single = len(valued) - len(usable)
    if single:
        says.append(f"{single} grid{'s' if single > 1 else ''} with one seed only")
    return says


def all_of(*judges: ClaimTest) -> ClaimTest:
    """Make the test that several claims hold together."""

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        findings = [judge(evidence, dataset) for judge in judges]
        verdicts = {finding.verdict for finding in findings}
        for verdict in (FAILS, NOT_RUN, UNDECIDED, NOT_APPLICABLE, HOLDS):
            if verdict in verdicts:
                break
        return ClaimResult(
            verdict, "; and ".join(finding.text for finding in findings if finding.text)
        )

    return judge


def always_diverges(method: str, epsilon: float) -> ClaimTest:
    """Make the test that no point of the method's grid trains at this budget, at any paper k."""

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        design = _design(dataset, frozenset(), frozenset([epsilon]))
        cells = evidence.require_rows(dataset, method, design)
        if cells.empty:
            return ClaimResult(NOT_RUN, f"no grid of {labels.method_label(method)} at this budget")
        if evidence.runs is None:
            gone = cells["status"] == DIVERGED
            if "runs" in cells:  # of ours also cells whose runs had values before they diverged
                gone |= cells["diverged"] == cells["runs"]
            text = f"diverged in {gone.sum()} of {len(gone)} grids"
        else:
            runs = evidence.runs
            runs = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]
            runs = runs[(runs["epsilon"] == epsilon) & runs["k"].isin(cells["k"])]
            gone = runs["status"] == "diverged"
            text = f"{gone.sum()} of {len(gone)} runs diverged"
        if not gone.all():
            return ClaimResult(FAILS, text)
        if "grid_points" in cells and not _all_complete(cells, design):
            return ClaimResult(UNDECIDED, f"{text}, of an incomplete grid")
        return ClaimResult(HOLDS, text)

    return judge


def _all_complete(cells: pd.DataFrame, design: frozenset[tuple]) -> bool:
    return all(map(is_complete_grid, cells.to_dict("records"))) and len(cells) == len(design)
