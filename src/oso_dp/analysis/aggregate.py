"""Grid points over their seeds, and the best of each grid.

A grid point's value is the mean over its seeds, and a grid's is that of its best point. Diverged
runs count with what they reached before diverging, and are counted as diverged.
"""

import numpy as np
import pandas as pd

from oso_dp.analysis.values import CELL, DEFAULT_MOMENTUM, POINT, VARIANT, metric_directions
from oso_dp.analysis.values import variant_labels
from oso_dp.paper.tables import PAPER_EPOCHS


def grid_points(values: pd.DataFrame) -> pd.DataFrame:
    """One row per grid point: mean and standard deviation (n - 1) over seeds, and counts.

    mean, std: stored unit; std is NaN for one seed. seeds: those with a value; runs, diverged:
    all of the point. variant: schedule and averaging, in words; empty without.
    """
    keep = ["cell", "variant_key", "metric", *CELL, *VARIANT, *POINT]
    points = values.drop_duplicates("point").set_index("point")[keep]
    groups = values.groupby("point")
    points[["mean", "std", "seeds"]] = groups["value"].agg(["mean", "std", "count"])
    points["runs"] = groups.size()
    points["diverged"] = (values["status"] == "diverged").groupby(values["point"]).sum()
    points["variant"] = variant_labels(points)
    return points.reset_index()


def main_variants(points: pd.DataFrame) -> pd.DataFrame:
    """For each cell the points of one variant: the default one, else the one with the most runs.

    The default has no schedule or averaging, momentum 0.9 (null for a method without that option)
    and the paper's ten epochs, in decreasing priority. The choice must not depend on the variants'
    values.
    """
    plain = points["variant"] == ""
    default = points["momentum"].isna() | np.isclose(points["momentum"], DEFAULT_MOMENTUM)
    ranked = points.assign(default=4 * plain + 2 * default + (points["epochs"] == PAPER_EPOCHS))
    ranked["variant_runs"] = ranked.groupby("variant_key")["runs"].transform("sum")
    ranked = ranked.sort_values(
        ["cell", "default", "variant_runs", "variant_key"], ascending=[True, False, False, True]
    )
    main = ranked.drop_duplicates("cell")["variant_key"]
    return points[points["variant_key"].isin(main)]


def select_best_points(points: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: its best grid point, of equals the first in the order of keys.

    Adds `points` (grid points with a run), `cell_runs` and `cell_diverged`. A cell in which no
    run has a value keeps a row with NaN for mean and hyperparameters.
    """
    main = main_variants(points)
    score = (main["mean"] * metric_directions(main)).fillna(-np.inf)
    best = main.loc[score.groupby(main["cell"]).idxmax()].set_index("cell")
    best.loc[best["mean"].isna(), POINT] = np.nan
    cells = main.groupby("cell")
    best["points"] = cells.size()
    best["cell_runs"] = cells["runs"].sum()
    best["cell_diverged"] = cells["diverged"].sum()
    return best.reset_index()


def cross_select_points(values: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """One row per cell under the rule `cross`; values: `choose` by it, points: `grid_points`.

    mean, std, seeds: over seeds that have a value both ways. even_*, odd_*: the hyperparameters
    chosen on each half. The counts are those of `best_of_grid`.
    """
    main = values[values["variant_key"].isin(main_variants(points)["variant_key"])]
    cells = (
        select_best_points(points).set_index("cell").drop(columns=["mean", "std", "seeds", *POINT])
    )
    ways = []
    for half in ("even", "odd"):
        mean = main.groupby("point")[f"chosen_{half}"].mean()
        scored = main.drop_duplicates("point").set_index("point")[["cell", "metric", *POINT]]
        score = (mean * metric_directions(scored)).dropna()
        chosen = score.groupby(scored["cell"]).idxmax()
        cells = cells.join(scored.loc[chosen].set_index("cell")[POINT].add_prefix(f"{half}_"))
        rows = main[main["point"].isin(chosen)]
        ways.append(rows.set_index(["cell", "seed"])[f"value_{half}"])
    both = (ways[0] + ways[1]) / 2  # NaN where a seed has no value one of the ways
    cells[["mean", "std", "seeds"]] = both.groupby("cell").agg(["mean", "std", "count"])
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    return cells.reset_index()
