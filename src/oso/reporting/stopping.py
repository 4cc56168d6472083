"""What random stopping gives: the expected best of a random number of random draws from a grid.

Papernot and Steinke 2022: K is drawn from a distribution of mean N, then K times a candidate,
uniformly and with replacement, and only the best is released. A study runs each point of the grid
instead, once per seed; from these rows the outcome follows exactly. With the points in order of
their values, worst first, the best of K draws is among the first j of M with probability
E[(j / M)^K], the distribution's generating function at j / M.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq

from oso.privacy.search import SHAPES
from oso.reporting import labels
from oso.reporting.budget import grid_size
from oso.reporting.compare import Study
from oso.reporting.select import CELL, grid_points, is_higher_better, main_variants

STOPPING = "random_stopping"
DISTRIBUTION = "geometric"  # what the study prices
COLUMNS = [
    *CELL,
    "metric",
    "value",  # expected over K, the draws, and seeds; printed unit
    "std",  # of the expectation, over seeds
    "luck",  # standard deviation over K and the draws, of the value over seeds
    "nothing",  # probability that no draw has a value
    *("seeds", "points", "grid_size", "mean_runs", "distribution", "noise_multiplier"),
]

Values = npt.NDArray[np.float64]


def generating_function(mean: float, shape: float) -> Callable[[Values], Values]:
    """x -> E[x^K] on [0, 1] for K with this mean.

    `shape` as in `oso.privacy.search.SHAPES`: the truncated negative binomial's (Papernot and
    Steinke 2022, Definition 1; K >= 1), or infinity for Poisson, where K = 0 is possible.
    """
    if math.isinf(shape):
        return lambda x: np.exp(mean * (x - 1))
    gamma = _stopping_probability(mean, shape)
    if shape == 0:
        return lambda x: np.log1p((gamma - 1) * x) / math.log(gamma)
    return lambda x: np.expm1(-shape * np.log1p((gamma - 1) * x)) / (gamma**-shape - 1)


@cache
def _stopping_probability(mean: float, shape: float) -> float:
    """gamma of the distribution with this mean, above 1."""

    def excess(log_gamma: float) -> float:
        gamma = math.exp(log_gamma)
        if shape == 0:
            return (1 - 1 / gamma) / log_gamma - mean
        return shape * (1 / gamma - 1) / -math.expm1(shape * log_gamma) - mean

    return math.exp(brentq(excess, math.log(1e-9 / mean), -1e-9, xtol=1e-14))


def chances(values: Values, higher_is_better: bool, mean: float, shape: float) -> Values:
    """For each point the probability that it is the best of K draws, [M].

    values: [M], NaN for a point without a value, which is worse than all others. Points of equal
    value share their chance. The sum is below 1 where K = 0 is possible.
    """
    order = np.where(np.isnan(values), -np.inf, values if higher_is_better else -values)
    below = np.searchsorted(np.sort(order), order, side="left") / len(order)
    up_to = np.searchsorted(np.sort(order), order, side="right") / len(order)
    at_most = generating_function(mean, shape)
    alike = (up_to - below) * len(order)
    return np.asarray((at_most(up_to) - at_most(below)) / alike)


def outcomes(study: Study) -> pd.DataFrame:
    """A row per cell that was run under random stopping, columns `COLUMNS`.

    Points are drawn and compared as elsewhere in the report: a point's value is its mean over seeds
    under the paper's rule. Draws without any value are left out of `value`, and counted in
    `nothing`. Where not every point of the grid was run there is no value: the best of a part says
    nothing of the whole.
    """
    mine = study.values[study.values["selection"] == STOPPING]
    if mine.empty:
        return pd.DataFrame(columns=COLUMNS)
    points = main_variants(grid_points(mine))
    by_point = mine.pivot_table(index="point", columns="seed", values="value")
    rows = [_outcome(study, cell, by_point) for _, cell in points.groupby("cell", sort=False)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _outcome(study: Study, cell: pd.DataFrame, by_point: pd.DataFrame) -> dict[str, object]:
    first = cell.iloc[0]
    size = grid_size(first["dataset"], first["method"], first["k"], study.budget)
    row = {
        **{name: first[name] for name in (*CELL, "metric", "noise_multiplier")},
        **dict.fromkeys(("value", "std", "luck", "nothing"), math.nan),
        "seeds": int(cell["seeds"].max()),
        "points": len(cell),
        "grid_size": size,
        "mean_runs": size,
        "distribution": DISTRIBUTION,
    }
    if size != len(cell) or size < 2:
        return row
    values = cell["mean"].to_numpy(dtype=float)
    if np.isnan(values).all():
        return row | {"nothing": 1.0}
    higher = is_higher_better(first["metric"])
    chance = chances(values, higher, size, SHAPES[DISTRIBUTION])
    there = ~np.isnan(values)
    some = chance[there].sum()
    weights, values = chance[there] / some, values[there] * labels.scale(first["metric"])
    mean = float(weights @ values)
    # Which point is best is decided over seeds; each seed then says what came of that.
    seeds = by_point.reindex(cell["point"][there]).to_numpy() * labels.scale(first["metric"])
    whole = seeds[:, ~np.isnan(seeds).any(axis=0)]
    return row | {
        "value": mean,
        "std": float(np.std(weights @ whole, ddof=1)) if whole.shape[1] > 1 else math.nan,
        "luck": float(np.sqrt(max(0.0, weights @ (values - mean) ** 2))),
        "nothing": float(1 - some),
    }
