"""Expected outcome of a search by random stopping (truncated negative binomial or Poisson K).

Papernot and Steinke 2022: K is drawn from a distribution with mean N, then K candidates, uniformly
and with replacement, and only the best is released. A study runs each point of the grid instead,
once per seed; the expected outcome is computed exactly from these rows. With the points sorted by
value, worst first, the best of K draws is among the first j of M with probability E[(j / M)^K], the
distribution's probability generating function at j / M.

A point that is drawn twice counts as one training run here, with the mean of its seeds. A real
search would train it again with fresh noise and release the better result: its outcome is slightly
better than the value here, and varies more.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    Values,
    generating_function,
)
from oso_dp.analysis.result_set import ResultSet, cached_per_study
from oso_dp.analysis.values import (
    CELL,
    COMPARABLE_ON,
    grid_points,
    main_variants,
    select_best_points,
    sort_as_paper,
)
from oso_dp.defaults import STOPPING_DISTRIBUTION
from oso_dp.metrics import is_higher_better

COLUMNS = [
    *(*CELL, "variant"),  # schedule and averaging, in words; empty without
    "search_accounting",
    "metric",
    "value",  # of the grid's best point, or expected over K, the draws and seeds; printed unit
    "std",  # of that value over seeds
    "luck",  # under random stopping: standard deviation over K and the draws
    "nothing",  # under random stopping: probability that no draw has a value
    *("seeds", "points", "grid_size", *COMPARABLE_ON, "noise_multiplier"),
    "distribution",  # under random stopping: of K
]

_COMPARED_COLUMNS = ["dataset", "k", "epsilon", "distribution"]
_ORDER = [*STOPPING_ETA]  # of the distributions


def selection_probabilities(
    values: Values, higher_is_better: bool, mean: float, shape: float
) -> Values:
    """Probability of each point to be the best of K draws, shape [M].

    Args:
        values: Shape [M]; NaN for a point without a value, which ranks below all others.
        higher_is_better: Whether a higher value is better.
        mean: Mean of K.
        shape: Parameter eta of the truncated negative binomial distribution.

    Returns:
        The probabilities. Points of equal value share theirs equally. The sum is below 1 where
        K = 0 is possible.
    """
    order = np.where(np.isnan(values), -np.inf, values if higher_is_better else -values)
    below = np.searchsorted(np.sort(order), order, side="left") / len(order)
    up_to = np.searchsorted(np.sort(order), order, side="right") / len(order)
    at_most = generating_function(mean, shape)
    alike = (up_to - below) * len(order)
    return np.asarray((at_most(up_to) - at_most(below)) / alike)


@cached_per_study
def outcomes(study: ResultSet) -> pd.DataFrame:
    """Rows for each cell that was run under random stopping; columns `COLUMNS`.

    One row for each distribution of K, and one for composition, if that was run with the same
    precision, length and delta.

    A point's value is its mean over seeds under the paper's checkpoint rule. Draws without a value
    are excluded from `value` and counted in `nothing`. An incomplete grid has no value. The mean of
    K is the size of the grid. seeds: under random stopping, those common to all points with a
    value.
    """
    values = study.values
    stopped = values[values["search_accounting"] == RANDOM_STOPPING]
    if stopped.empty:
        return pd.DataFrame(columns=COLUMNS)
    points = grid_points(stopped)
    points["stopping_distribution"] = points["stopping_distribution"].fillna(STOPPING_DISTRIBUTION)
    by_point = stopped.pivot_table(index="point", columns="seed", values="value")
    rows = [
        _random_stopping_rows(study, cell, by_point)
        for _, alike in points.groupby("stopping_distribution", sort=False)
        for _, cell in main_variants(alike).groupby("cell", sort=False)
    ]
    rows.sort(key=lambda row: _ORDER.index(row["distribution"]))
    composed = values[(values["search_accounting"] == COMPOSITION) & values["epsilon"].notna()]
    if len(composed):
        beside = pd.DataFrame(rows)[[*CELL, "variant", *COMPARABLE_ON]].drop_duplicates()
        best = select_best_points(grid_points(composed)).merge(beside)
        rows += [_composition_rows(study, row) for row in best.to_dict("records")]
    return sort_as_paper(pd.DataFrame(rows, columns=COLUMNS))


def distributions(data: pd.DataFrame) -> str:
    """The distributions of K in `outcomes`, in words."""
    return " or ".join(sorted(data["distribution"].dropna().unique()))


def primary_distribution(data: pd.DataFrame) -> pd.DataFrame:
    """One row of `outcomes` under random stopping per cell, for comparisons between methods.

    The row of the distribution under which most methods have a value at the same data set, k and
    epsilon; for a method without a value there, its first row with one.
    """
    stopped = data[data["search_accounting"] == RANDOM_STOPPING]
    valued = stopped["value"].notna()
    together = valued.groupby(
        [stopped[name] for name in _COMPARED_COLUMNS], dropna=False
    ).transform("sum")
    ranked = stopped.assign(valued=valued, together=together)
    ranked = ranked.sort_values(["valued", "together"], ascending=False, kind="stable")
    return stopped.loc[ranked.drop_duplicates(CELL).index.sort_values()]


def _composition_rows(study: ResultSet, best: dict[str, Any]) -> dict[str, object]:
    size = study.grid_size(best["dataset"], best["method"], best["k"])
    factor = labels.display_factor(best["metric"]) if size == best["points"] else math.nan
    return {
        **{name: best[name] for name in (*CELL, "variant", "metric", "seeds", "points")},
        **{name: best[name] for name in (*COMPARABLE_ON, "noise_multiplier")},
        "search_accounting": COMPOSITION,
        "value": best["mean"] * factor,
        "std": best["std"] * factor,
        "grid_size": size,
    }


def _random_stopping_rows(
    study: ResultSet, cell: pd.DataFrame, by_point: pd.DataFrame
) -> dict[str, Any]:
    first = cell.iloc[0]
    size = study.grid_size(first["dataset"], first["method"], first["k"])
    row = {
        **{name: first[name] for name in (*CELL, "variant", "metric", *COMPARABLE_ON)},
        "noise_multiplier": first["noise_multiplier"],
        "search_accounting": RANDOM_STOPPING,
        "seeds": int(cell["seeds"].max()),
        "points": len(cell),
        "grid_size": size,
        "distribution": first["stopping_distribution"],
    }
    if size is None or size != len(cell) or size < 2:
        return row
    values = cell["mean"].to_numpy(dtype=float)
    if np.isnan(values).all():
        return row | {"nothing": 1.0}
    higher = is_higher_better(first["metric"])
    chance = selection_probabilities(values, higher, size, STOPPING_ETA[row["distribution"]])
    there = ~np.isnan(values)
    with_value = chance[there].sum()
    factor = labels.display_factor(first["metric"])
    weights, values = chance[there] / with_value, values[there] * factor
    mean = float(weights @ values)
    # The best point is selected on means over seeds; the seeds then give the standard deviation.
    seeds = by_point.reindex(cell["point"][there]).to_numpy() * factor
    whole = weights @ seeds[:, ~np.isnan(seeds).any(axis=0)]
    return row | {
        "seeds": len(whole),
        "value": mean,
        "std": float(np.std(whole, ddof=1)) if len(whole) > 1 else math.nan,
        "luck": float(np.sqrt(max(0.0, weights @ (values - mean) ** 2))),
        "nothing": float(1 - with_value),
    }
