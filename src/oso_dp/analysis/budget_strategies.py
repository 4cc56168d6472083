"""Budget strategies: a grid search, random stopping, linear scaling or one untuned run.

Compares strategies that spend the same epsilon at delta on one data set with Online's grid search.
A value is the mean over seeds of the best score on the test set, as in the paper: the search
selects its point, and each run its checkpoint, on the examples that evaluate them. Each value is
therefore also given under cross-selection (`cross`): both are selected on one half of the test set
and reported on the other. The difference is selection bias.

The default of `train_private` is chosen by minimax regret. The regret of a default at a data set
and epsilon is its distance to the best default there, in units of the data set's equivalence
margin. A default must have been run at all pairs of data set and epsilon. Where runs differ in
precision, length or delta, the group with the most defaults counts.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    LINEAR_SCALING,
    RANDOM_STOPPING,
    SINGLE,
    find_search_accounting,
)
from oso_dp.analysis import linear_scaling, random_stopping
from oso_dp.analysis.cells import have_paper_length, make_cells
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.untuned_runs import untuned_points
from oso_dp.analysis.values import (
    CELL,
    COMPARABLE_ON,
    are_comparable,
    sort_as_paper,
    variant_label,
)
from oso_dp.analysis.verdicts import SEEDS_NEEDED, Sample, compares_ratios, difference, margin_of
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import metric_direction
from oso_dp.study.default_points import DEFAULTS, DefaultConfig

DEFAULT = "default"
_SEARCHES = (COMPOSITION, RANDOM_STOPPING, LINEAR_SCALING)
STRATEGIES = {
    **{name: find_search_accounting(name).label for name in _SEARCHES},
    DEFAULT: "one run, from a default",
}

COLUMNS = [
    *CELL,
    *("strategy", "variant", "chosen", "seen"),  # seen: default chosen on this data
    "distribution",  # of the number of runs, under random stopping
    "trial_fractions",  # of epsilon, under linear scaling; comma-separated
    *("metric", "mean", "std", "seeds", "cross_mean", "cross_std"),  # printed unit
    *COMPARABLE_ON,
    "runs",  # that the budget covers
    "whole",  # whether the grid is complete
    "noise_multiplier",
    *("gain", "gain_half"),  # above the reference (positive is better), half its 95 % interval
]


@cached_per_study
def budget_strategies(study: ResultSet) -> pd.DataFrame:
    """One row per data set, epsilon and strategy, columns `COLUMNS`.

    Data sets without a run from a default are left out. If there are several candidates for a row:

    - a default that was run at several k: the one with the most seeds;
    - grid search, for the paper's methods and those of the defaults: the smallest k with a complete
      grid; else an incomplete grid that has the paper's best point, with enough seeds for a verdict
      before fewer;
    - random stopping and linear scaling: the smallest grid; for one grid with several trial
      fractions, the one with the most seeds.

    Runs that are shorter than the paper's are left out.
    """
    alone = pd.DataFrame(_from_defaults(study), columns=COLUMNS)
    if alone.empty:
        return alone
    searches = (_grid_searches(study), _random_stopping(study), _linear_scaling(study))
    rows = pd.DataFrame([row for found in searches for row in found], columns=COLUMNS)
    rows = rows[have_paper_length(rows)].assign(chosen="the search", seen=False)
    rows = rows.sort_values(["k", "seeds"], ascending=[True, False], kind="stable")
    rows = rows.drop_duplicates(_DEDUP_KEY).sort_index()
    all_rows = pd.concat([rows, alone], ignore_index=True)
    here = set(zip(alone["dataset"], alone["epsilon"], strict=True))
    kept = [pair in here for pair in zip(all_rows["dataset"], all_rows["epsilon"], strict=True)]
    all_rows = all_rows[kept].reset_index(drop=True)
    made = all_rows.to_dict("records")
    references = {(row["dataset"], row["epsilon"]): row for row in filter(is_reference, made)}
    return _sort(pd.DataFrame([_compare_with_references(row, references) for row in made]))


def is_reference(row: dict[str, Any]) -> bool:
    """Whether a row is Online's grid search, the reference of the comparison."""
    return (row["strategy"], row["method"], row["variant"]) == (COMPOSITION, "online", "")


def _from_defaults(study: ResultSet) -> Iterator[dict[str, Any]]:
    alone = study.values[study.values["search_accounting"] == SINGLE]
    if alone.empty:
        return
    all_rows = untuned_points(alone)
    all_rows = all_rows[have_paper_length(all_rows)]
    for default in DEFAULTS:
        of_default = all_rows[_matches_default(default, all_rows)]
        for _, cell in of_default.groupby(["dataset", "epsilon"], sort=False):
            row = cell.sort_values(["seeds", "k"], ascending=[False, True]).iloc[0].to_dict()
            factor = labels.display_factor(row["metric"])
            is_here = study.cross_values["point"] == row["point"]
            judged = study.cross_values.loc[is_here, "value"] * factor
            yield row | {
                **{name: row[name] * factor for name in ("mean", "std")},
                "cross_mean": judged.mean(),
                "cross_std": judged.std(ddof=1),
                "strategy": DEFAULT,
                "chosen": default.why_chosen,
                "seen": row["dataset"] in default.chosen_on,
                "runs": 1,
                "whole": True,
            }


def _matches_default(default: DefaultConfig, rows: pd.DataFrame) -> pd.Series:
    """Which rows are runs of the default, with its schedule and averaging."""
    matching = (rows["method"] == default.method) & (
        rows["variant"]
        == variant_label(default.variant.get("schedule"), default.variant.get("averaging"))
    )
    for axis, value in default.point.items():
        matching &= np.isclose(rows[axis].astype(float), value, rtol=1e-4, atol=0)
    return matching


def _grid_searches(study: ResultSet) -> list[dict[str, Any]]:
    known = {*PAPER_METHODS, *(default.method for default in DEFAULTS)}
    best = study.best[study.best["epsilon"].notna() & study.best["method"].isin(known)]
    sizes = [study.grid_size(row.dataset, row.method, row.k) or 0 for row in best.itertuples()]
    best = best.assign(size=sizes, part=np.less(best["points"], sizes))
    had = _paper_point_rows(study)
    keys = zip(*(best[name] for name in CELL), strict=True)
    best = best.assign(lacks=best["part"] & np.array([key not in had for key in keys], dtype=bool))
    best["few"] = best["part"] & (best["seeds"] < SEEDS_NEEDED)
    best = best[(best["size"] > 1) & have_paper_length(best)]
    best = best.sort_values(["part", "lacks", "few", "k"])
    best = best.drop_duplicates(["dataset", "epsilon", "method", "variant"])
    factor = best["metric"].map(labels.display_factor).astype(float)
    cross = study.cross_selected.set_index("cell")
    for name in ("mean", "std"):
        best[f"cross_{name}"] = best["cell"].map(cross[name]) * factor
        best[name] *= factor
    best = best.assign(strategy=COMPOSITION, runs=best["size"], whole=~best["part"])
    return best.to_dict("records")


_DEDUP_KEY = ["dataset", "epsilon", "strategy", "method", "variant", "distribution"]


def _paper_point_rows(study: ResultSet) -> set[tuple]:
    """The cells with runs at the paper's best point."""
    all_rows = make_cells(study)
    there = all_rows.loc[all_rows["at_paper_seeds"].notna(), CELL]
    return {tuple(row) for row in there.itertuples(index=False)}


def strategy_title(row: dict[str, Any]) -> str:
    """The title of a row's strategy; for an incomplete grid, its k."""
    return STRATEGIES[row["strategy"]] if row["whole"] else f"incomplete grid, k = {row['k']:g}"


def _random_stopping(study: ResultSet) -> list[dict[str, Any]]:
    rows = random_stopping.outcomes(study)
    rows = rows[(rows["search_accounting"] == RANDOM_STOPPING) & rows["value"].notna()]
    names = {"search_accounting": "strategy", "value": "mean", "grid_size": "runs"}
    return rows.rename(columns=names).assign(whole=True).to_dict("records")


def _linear_scaling(study: ResultSet) -> list[dict[str, Any]]:
    rows = linear_scaling.outcomes(study).dropna(subset="mean")
    trials = rows["trial_fractions"].str.count(",") + 1
    runs = trials * rows["grid_runs"] + 1  # each trial's, and the final one
    return rows.assign(strategy=LINEAR_SCALING, runs=runs, whole=True).to_dict("records")


def _compare_with_references(
    row: dict[str, Any], references: dict[tuple, dict[str, Any]]
) -> dict[str, Any]:
    """Add the gain over the reference of the same data set and epsilon.

    Not for an incomplete grid on either side, nor for runs that are not comparable.
    """
    reference = references.get((row["dataset"], row["epsilon"]))
    if reference is None or is_reference(row):
        return row
    if not (row["whole"] and reference["whole"]):
        return row
    if math.isnan(row["mean"]) or math.isnan(reference["mean"]):
        return row
    if not are_comparable(row, reference):
        return row
    gap = difference([(Sample.of(row), Sample.of(reference))])
    half = math.nan if gap is None else gap.half
    return row | {
        "gain": metric_direction(row["metric"]) * (row["mean"] - reference["mean"]),
        "gain_half": half,
    }


def _sort(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort by data set and epsilon, then by strategy in the order of `STRATEGIES`."""
    rows = sort_as_paper(rows.reindex(columns=COLUMNS))
    order = {dataset: place for place, dataset in enumerate(rows["dataset"].unique())}
    rank = pd.DataFrame(
        {
            "dataset": rows["dataset"].map(order),
            "epsilon": rows["epsilon"],
            "strategy": rows["strategy"].map(list(STRATEGIES).index),
        }
    )
    rank = rank.sort_values(["dataset", "epsilon", "strategy"], kind="stable")
    return rows.loc[rank.index].reset_index(drop=True)


_DEFAULT = ["method", "variant"]
_CELL_KEY = ["dataset", "epsilon"]
REGRET_COLUMNS = [
    *_DEFAULT,
    "loss",  # maximum regret, in units of the margin
    *_CELL_KEY,  # where it occurs
    "places",  # number of pairs of data set and epsilon
]


def max_regret(study: ResultSet) -> pd.DataFrame:
    """Maximum regret of each default, smallest first; columns `REGRET_COLUMNS`.

    Only defaults that were run at all pairs of data set and epsilon at which at least two defaults
    have three seeds.
    """
    rows = budget_strategies(study)
    rows = rows[
        (rows["strategy"] == DEFAULT) & (rows["seeds"] >= SEEDS_NEEDED) & rows["mean"].notna()
    ]
    rows = rows[rows["dataset"].map(margin_of) > 0]
    rows = _select_comparable(rows)
    rows = rows[rows.groupby(_CELL_KEY)["method"].transform("size") > 1]
    if rows.empty:
        return pd.DataFrame(columns=REGRET_COLUMNS)
    ratio = rows["dataset"].map(compares_ratios).astype(bool)
    values = rows["mean"].mask(ratio, np.log(rows["mean"].where(ratio)))
    score = rows["metric"].map(metric_direction) * values / rows["dataset"].map(margin_of)
    best = score.groupby([rows[name] for name in _CELL_KEY]).transform("max")
    rows = rows.assign(loss=best - score)
    places = len(rows[_CELL_KEY].drop_duplicates())
    made: list[dict[str, Any]] = []
    for _, judged in rows.groupby(_DEFAULT, sort=False):
        if len(judged) == places:
            worst = judged.loc[judged["loss"].idxmax()]
            made.append({**worst[[*_DEFAULT, "loss", *_CELL_KEY]], "places": places})
    return pd.DataFrame(made, columns=REGRET_COLUMNS).sort_values("loss", ignore_index=True)


def _select_comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """At each pair the largest comparable group; ties are resolved by `COMPARABLE_ON`."""
    kinds = rows.groupby([*_CELL_KEY, *COMPARABLE_ON], as_index=False).size()
    kinds = kinds.sort_values("size", ascending=False, kind="stable").drop_duplicates(_CELL_KEY)
    return rows.merge(kinds[[*_CELL_KEY, *COMPARABLE_ON]])
