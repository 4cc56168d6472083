"""Untuned runs that spend the whole budget alone, compared with the best of a searched grid.

A grid of N runs under one budget has more noise per run than a single run. Untuned hyperparameters
that miss the best point may therefore still beat the search. Here each grid point is such an
untuned run ("guess"), with the whole budget.

The width of the range of guesses that beat the search is measured in decades: on a logarithmic axis
each grid value covers an interval of one grid step.
"""

import math

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import SINGLE
from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    ClaimResult,
    ClaimTest,
)
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.values import (
    CELL,
    COMPARABLE_ON,
    POINT,
    are_comparable,
    best_row,
    grid_points,
    main_variants,
    sort_as_paper,
)
from oso_dp.analysis.verdicts import Sample, difference
from oso_dp.metrics import metric_direction

# The references: the best of the same method's search ("own"), and of Online's.
SEARCHED_METHODS = ("own", "online")
VARIANTS = ("beat", "surely", "possibly")
LOGARITHMIC = ("learning_rate", "threshold")
_SEARCH = ("mean", "std", "seeds", "points", "grid_size", "noise_multiplier")

UNTUNED_COLUMNS = [
    *CELL,
    "variant",  # schedule and averaging, in words; empty without
    *("metric", *COMPARABLE_ON, *POINT),
    *("mean", "std", "seeds", "diverged", "noise_multiplier"),  # printed unit
    *(
        f"{searched}_{name}"
        for searched in SEARCHED_METHODS
        # The searched grid's best point; the gain over it (positive is better) and half of its
        # 95 % interval.
        for name in (*_SEARCH, "gain", "gain_half")
    ),
]
RANGE_COLUMNS = [
    *(*CELL, "variant"),
    *("metric", *COMPARABLE_ON),
    *("guesses", "noise_multiplier", "best_mean", "best_std", "best_seeds"),
    *(f"best_{name}" for name in POINT),
    *(f"{searched}_{name}" for searched in SEARCHED_METHODS for name in _SEARCH),
    # How many guesses beat the search: in the mean, surely (the interval lies above 0), possibly
    # (it does not lie below 0); and how many decades of an axis they cover, at the best values of
    # the other axes.
    *(f"{searched}_{how}" for searched in SEARCHED_METHODS for how in VARIANTS),
    *(
        f"{searched}_{axis}_decades_{how}"
        for searched in SEARCHED_METHODS
        for axis in LOGARITHMIC
        for how in VARIANTS
    ),
]


@cached_per_study
def untuned_runs(study: ResultSet) -> pd.DataFrame:
    """One row per untuned point, columns `UNTUNED_COLUMNS`, in grid order within a cell."""
    alone = study.values[study.values["search_accounting"] == SINGLE]
    if alone.empty:
        return pd.DataFrame(columns=UNTUNED_COLUMNS)
    best = study.plain_best.set_index(CELL).sort_index()
    rows = []
    for guess in untuned_points(alone).to_dict("records"):
        factor = labels.display_factor(guess["metric"])
        row = guess | {"mean": guess["mean"] * factor, "std": guess["std"] * factor}
        for searched in SEARCHED_METHODS:
            method = guess["method"] if searched == "own" else searched
            row |= {
                f"{searched}_{name}": value
                for name, value in _compare_with_search(study, row, best, method).items()
            }
        rows.append(row)
    return sort_as_paper(
        pd.DataFrame(rows, columns=UNTUNED_COLUMNS).sort_values(["variant", *POINT], kind="stable")
    )


def win_ranges(study: ResultSet) -> pd.DataFrame:
    """One row per cell with several untuned points, columns `RANGE_COLUMNS`."""
    cells = with_alternatives(study).groupby([*CELL, "variant"], sort=False)
    return sort_as_paper(pd.DataFrame([_range(cell) for _, cell in cells], columns=RANGE_COLUMNS))


def with_alternatives(study: ResultSet) -> pd.DataFrame:
    """The rows of `untuned_runs` in cells with more than one."""
    all_rows = untuned_runs(study)
    sizes = all_rows.groupby([*CELL, "variant"])["metric"].transform("size")
    return all_rows[sizes > 1]


def untuned_points(values: pd.DataFrame) -> pd.DataFrame:
    """The untuned points over their seeds, for each cell and variant the main setting.

    values: `ResultSet.values` of untuned runs. Columns as of `values.grid_points`.
    """
    points = grid_points(values)
    return pd.concat(
        [main_variants(alike) for _, alike in points.groupby("variant")], ignore_index=True
    )


def _compare_with_search(
    study: ResultSet, row: dict, best: pd.DataFrame, method: str
) -> dict[str, float]:
    """The columns of `UNTUNED_COLUMNS` for this method's search.

    Empty if there is none, or if it differs in precision, length or delta.
    """
    dataset, k, epsilon = (row[name] for name in CELL[:-1])
    if (dataset, k, epsilon, method) not in best.index:
        return {}
    search = best.loc[(dataset, k, epsilon, method)]
    if not are_comparable(row, search):
        return {}
    factor = labels.display_factor(row["metric"])
    mean, std = search["mean"] * factor, search["std"] * factor
    beside = {name: search[name] for name in ("seeds", "points", "noise_multiplier")}
    beside |= {"mean": mean, "std": std}
    beside["grid_size"] = study.grid_size(dataset, method, k)
    if math.isnan(row["mean"]) or math.isnan(mean):
        return beside
    gap = difference([(Sample.of(row), Sample(mean, std, int(search["seeds"])))])
    beside["gain"] = metric_direction(row["metric"]) * (row["mean"] - mean)
    return beside | {"gain_half": math.nan if gap is None else gap.half}


def _range(cell: pd.DataFrame) -> dict:
    first = cell.iloc[0]
    alike = (*CELL, "variant", "metric", *COMPARABLE_ON, "noise_multiplier")
    row = {name: first[name] for name in alike}
    row |= {"guesses": len(cell)}
    if cell["mean"].notna().any():
        best = best_row(cell)
        row |= {f"best_{name}": best[name] for name in ("mean", "std", "seeds", *POINT)}
    for searched in SEARCHED_METHODS:
        for name in _SEARCH:
            row[f"{searched}_{name}"] = first[f"{searched}_{name}"]
        if pd.isna(first[f"{searched}_mean"]):
            continue
        gain, half = cell[f"{searched}_gain"], cell[f"{searched}_gain_half"].fillna(math.inf)
        for how, won in zip(VARIANTS, (gain > 0, gain - half > 0, gain + half >= 0), strict=True):
            row[f"{searched}_{how}"] = int(won.sum())
            for axis in set(LOGARITHMIC) & set(labels.searched_axes(first["method"])):
                row[f"{searched}_{axis}_decades_{how}"] = _decades_won(cell, won, axis)
    return row


def _decades_won(cell: pd.DataFrame, won: pd.Series, axis: str) -> float:
    """How many decades of this axis the winning guesses cover, at the best of the other axes.

    A value covers half of the distance to each neighbour; at an end of the axis, one full step. NaN
    if the grid has only one value on the axis.
    """
    values = np.sort(cell[axis].dropna().unique())
    if len(values) < 2:
        return math.nan
    steps = np.diff(np.log10(values))
    covered = (np.append(steps[0], steps) + np.append(steps, steps[-1])) / 2
    decades = won * cell[axis].map(dict(zip(values, covered, strict=True)))
    others = [name for name in POINT if name != axis]
    return float(decades.groupby([cell[name] for name in others], dropna=False).sum().max())


def wins_over_decades(method: str, decades: float) -> ClaimTest:
    """Make the test that guesses of rho over `decades` decades beat the method's own search.

    The claim holds if they surely do at each k and epsilon that has both, and fails if they do not
    even possibly at one of them. Incomplete sets of guesses cannot fail, since the others might
    win; incomplete searches cannot hold, since the complete search might be better.
    """

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        if evidence.untuned is None:
            return ClaimResult(NOT_APPLICABLE)
        rows = evidence.untuned
        rows = rows[(rows["dataset"] == dataset) & (rows["method"] == method)]
        rows = rows[rows["own_mean"].notna() & (rows["variant"] == "")]
        if rows.empty:
            return ClaimResult(
                NOT_RUN, f"no guess of {labels.method_label(method)} beside its search"
            )
        surely, possibly = (
            rows[f"own_learning_rate_decades_{how}"] for how in ("surely", "possibly")
        )
        whole = (rows["guesses"] >= rows["own_grid_size"]).fillna(False).astype(bool)
        searched = (rows["own_points"] >= rows["own_grid_size"]).fillna(False).astype(bool)
        verdict = HOLDS if (whole & searched & (surely >= decades)).all() else UNDECIDED
        if (whole & (possibly < decades)).any():
            verdict = FAILS
        text = "; ".join(
            f"k = {row['k']}, ε = {row['epsilon']:g}: {row['own_learning_rate_decades_beat']:.1f} "
            f"decades [{row['own_learning_rate_decades_surely']:.1f}, "
            f"{row['own_learning_rate_decades_possibly']:.1f}]"
            + ("" if all_ran else f", of {row['guesses']} guesses only")
            + ("" if all_searched else f", beside {row['own_points']:.0f} searched points only")
            for row, all_ran, all_searched in zip(
                rows.to_dict("records"), whole, searched, strict=True
            )
        )
        numbers = {"low": float(surely.min()), "high": float(possibly.max()), "margin": decades}
        return ClaimResult(verdict, text, {**numbers, "grids": len(rows)})

    return judge
