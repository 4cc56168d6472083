"""Which checkpoint and which hyperparameters count as best is decided here, when reading.

A rule reduces each run to one value on the split `test`:

- `best`: the best value over all evaluated steps, as in the paper. It looks at the test set, so
  it is neither private nor an honest estimate.
- `last`: the value at the last evaluated step.

Then a grid point's value is the mean over its seeds, and a grid's is that of its best point.
Diverged runs count with what they reached before diverging, and are counted as diverged.
"""

from typing import Any

import numpy as np
import pandas as pd

from oso.errors import OsoError

HIGHER_IS_BETTER = {"accuracy": True, "mse": False}
RULES = ("best", "last")

CELL = ["dataset", "k", "epsilon", "method"]
POINT = ["learning_rate", "threshold", "quantile"]
# Runs that differ in one of these answer different questions and are never averaged.
VARIANT = [
    "delta",
    "selection",
    "momentum",
    "sampling",
    "examples",
    "batch_size",
    "epochs",
    "noise_multiplier",
    "query_noise_multiplier",
]
DEFAULT_MOMENTUM = 0.9


def _text(value: Any) -> str:
    if pd.isna(value):
        return "null"
    # Nine digits: the same grid value computed on two machines may differ in its last bit.
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _key(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    return ["|".join(map(_text, row)) for row in zip(*(frame[c] for c in columns), strict=True)]


def is_higher_better(metric: str) -> bool:
    """Raises OsoError for a metric whose direction is unknown."""
    if metric not in HIGHER_IS_BETTER:
        allowed = ", ".join(HIGHER_IS_BETTER)
        raise OsoError(f"evaluations: metric {metric!r} is unknown; allowed: {allowed}")
    return HIGHER_IS_BETTER[metric]


def run_values(
    runs: pd.DataFrame, evaluations: pd.DataFrame, rule: str = "best", split: str = "test"
) -> pd.DataFrame:
    """One row per run: its columns, and `metric`, `value`, `selected_step` under the rule.

    value: in the stored unit (fraction or mse per pixel), NaN where no finite evaluation exists.
    Adds the text keys `cell`, `variant` (cell and setting) and `point` (variant and
    hyperparameters). Independent of the order of rows. Raises OsoError for an unknown rule, and
    where one data set has two metrics.
    """
    if rule not in RULES:
        raise OsoError(f"rule {rule!r} is unknown; allowed: {', '.join(RULES)}")
    seen = evaluations[(evaluations["split"] == split) & np.isfinite(evaluations["value"])]
    sign = seen["metric"].map({m: 1.0 if is_higher_better(m) else -1.0 for m in set(seen.metric)})
    if rule == "best":  # the earliest step among equals
        ranked = seen.assign(score=-sign * seen["value"])
        ranked = ranked.sort_values(["run_id", "score", "step"], kind="stable")
        chosen = ranked.drop_duplicates("run_id", keep="first")
    else:
        chosen = seen.sort_values(["run_id", "step"]).drop_duplicates("run_id", keep="last")
    chosen = chosen[["run_id", "metric", "value", "step"]].rename(columns={"step": "selected_step"})
    values = runs.merge(chosen, on="run_id", how="left", validate="one_to_one")
    values["metric"] = values["dataset"].map(_metrics(values))
    values["cell"] = _key(values, CELL)
    values["variant"] = _key(values, CELL + VARIANT)
    values["point"] = _key(values, CELL + VARIANT + POINT)
    _refuse_twins(values)
    return values.sort_values(["point", "seed", "run_id"], kind="stable").reset_index(drop=True)


def _refuse_twins(values: pd.DataFrame) -> None:
    """Two runs alike in every column but their identity answer two questions, a mean neither."""
    twins = values[values.duplicated(["point", "seed"], keep=False)].sort_values(
        ["point", "run_id"]
    )
    if len(twins):
        first, second = twins["run_id"].iloc[:2]
        raise OsoError(
            f"runs {first} and {second}: alike in every column, so made by different settings that "
            "the tables do not hold; keep such studies in different results folders"
        )


def _metrics(values: pd.DataFrame) -> dict[str, str]:
    found = values.dropna(subset="metric").groupby("dataset")["metric"].unique()
    for dataset, metrics in found.items():
        if len(metrics) > 1:
            names = ", ".join(sorted(metrics))
            raise OsoError(f"evaluations: data set {dataset} has metrics {names}; one is allowed")
    return {dataset: metrics[0] for dataset, metrics in found.items()}


def grid_points(values: pd.DataFrame) -> pd.DataFrame:
    """One row per grid point: mean and standard deviation (n - 1) over seeds, and counts.

    mean, std: stored unit; std is NaN for one seed. seeds: those with a value; runs, diverged:
    all of the point.
    """
    over_seeds = values.groupby("point")["value"].agg(["mean", "std", "count"])
    keep = ["cell", "variant", "metric", *CELL, *VARIANT, *POINT]
    points = values.groupby("point")[keep].nth(0).set_index(values.groupby("point").nth(0)["point"])
    points["mean"] = over_seeds["mean"]
    points["std"] = over_seeds["std"]
    points["seeds"] = over_seeds["count"]
    points["seeds"] = points["seeds"].fillna(0).astype(int)
    points["runs"] = values.groupby("point").size()
    points["diverged"] = (values["status"] == "diverged").groupby(values["point"]).sum()
    return points.reset_index().sort_values("point", kind="stable").reset_index(drop=True)


def main_variants(points: pd.DataFrame) -> pd.DataFrame:
    """For each cell the points of one setting: the default one, else that with the most runs.

    The default is budget by composition and momentum 0.9 (null where the method has its own).
    Which settings are shown must not depend on how well they did.
    """
    default = points["momentum"].isna() | np.isclose(points["momentum"], DEFAULT_MOMENTUM)
    default &= points["selection"].isna() | (points["selection"] == "composition")
    ranked = points.assign(default=default)
    ranked["variant_runs"] = ranked.groupby("variant")["runs"].transform("sum")
    ranked = ranked.sort_values(
        ["cell", "default", "variant_runs", "variant"], ascending=[True, False, False, True]
    )
    main = ranked.drop_duplicates("cell")["variant"]
    return points[points["variant"].isin(main)]


def best_of_grid(points: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: its best grid point under the values' rule.

    Adds `points` (grid points with a run), `cell_runs` and `cell_diverged`. A cell in which no
    run has a value keeps a row with NaN for mean and hyperparameters.
    """
    rows = []
    for _, cell in main_variants(points).groupby("cell", sort=True):
        valued = cell.dropna(subset="mean")
        if valued.empty:
            best = cell.iloc[0].copy()
            best[POINT] = np.nan
        else:
            higher = is_higher_better(valued["metric"].iloc[0])
            # Equal means: the point that comes first in the order of keys.
            best = valued.loc[valued["mean"].idxmax() if higher else valued["mean"].idxmin()].copy()
        best["points"] = len(cell)
        best["cell_runs"] = int(cell["runs"].sum())
        best["cell_diverged"] = int(cell["diverged"].sum())
        rows.append(best)
    return pd.DataFrame(rows).reset_index(drop=True)


def select_best(
    runs: pd.DataFrame, evaluations: pd.DataFrame, rule: str = "best"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The best grid point of every cell, and the runs (`run_values`) that make it up."""
    values = run_values(runs, evaluations, rule)
    best = best_of_grid(grid_points(values))
    return best, values[values["point"].isin(best["point"])].reset_index(drop=True)
