"""Which checkpoint and which hyperparameters count as best is decided here, when reading.

A rule says which checkpoint stands for a run, and by which test examples it and the grid's best
point are chosen:

- `best`: the best checkpoint on the test set, as in the paper. The same examples choose and report,
  so it is neither private nor an honest estimate.
- `last`: the last checkpoint. The grid's point is still chosen on the test set.
- `cross`: checkpoint and point are chosen on one half of the test set (even- or odd-numbered
  examples) and reported on the other; the mean of both ways. No example has a part in the choice of
  what it judges.

A grid point's value is the mean over its seeds, and a grid's is that of its best point. Diverged
runs count with what they reached before diverging, and are counted as diverged.
"""

import numpy as np
import pandas as pd

from oso_dp.errors import OsoError

HIGHER_IS_BETTER = {"accuracy": True, "mse": False}
RULES = ("best", "last", "cross")
SPLITS = ("test", "test_even", "test_odd")

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
    "precision",
    "settings",
]
DEFAULT_MOMENTUM = 0.9
DEFAULT_EPOCHS = 10
_DIGITS = 9  # the same grid value computed on two machines may differ in its last bit


def is_higher_better(metric: str) -> bool:
    """Raises OsoError for a metric whose direction is unknown."""
    if metric not in HIGHER_IS_BETTER:
        allowed = ", ".join(HIGHER_IS_BETTER)
        raise OsoError(f"evaluations: metric {metric!r} is unknown; allowed: {allowed}")
    return HIGHER_IS_BETTER[metric]


def add_keys(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """The runs with `metric` and three keys, in the order of the keys.

    Keys are whole numbers: `cell`, `variant` (a cell and a setting) and `point` (a variant and
    hyperparameters). Independent of the order of rows. Raises OsoError where one data set has two
    metrics, and where two runs differ in nothing but their identity.
    """
    keyed = runs.assign(metric=_metrics(runs, evaluations))
    rounded = keyed[CELL + VARIANT + POINT].copy()
    for name in rounded.columns[[t.kind == "f" for t in rounded.dtypes]]:
        rounded[name] = _rounded(rounded[name].to_numpy())
    for key, columns in (
        ("cell", CELL),
        ("variant", CELL + VARIANT),
        ("point", CELL + VARIANT + POINT),
    ):
        keyed[key] = rounded.groupby(columns, dropna=False, sort=True).ngroup()
    keyed[POINT] = rounded[POINT]
    _refuse_twins(keyed)
    return keyed.sort_values(["point", "seed", "run_id"], kind="stable").reset_index(drop=True)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Floats to `_DIGITS` significant digits; 0, NaN and infinities stay."""
    known = np.isfinite(values) & (values != 0)
    size = np.floor(np.log10(np.abs(values), where=known, out=np.zeros_like(values)))
    unit = 10.0 ** (_DIGITS - 1 - size)
    return np.where(known, np.round(values * unit) / unit, values)


def _metrics(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.Series:
    of_run = evaluations[["run_id", "metric"]].drop_duplicates()
    found = of_run.merge(runs[["run_id", "dataset"]], on="run_id")
    found = found.groupby("dataset")["metric"].unique()
    for dataset, metrics in found.items():
        if len(metrics) > 1:
            names = ", ".join(sorted(metrics))
            raise OsoError(f"evaluations: data set {dataset} has metrics {names}; one is allowed")
        is_higher_better(metrics[0])
    return runs["dataset"].map({dataset: metrics[0] for dataset, metrics in found.items()})


def _refuse_twins(keyed: pd.DataFrame) -> None:
    """Two runs alike in every column but their identity answer two questions, a mean neither."""
    twins = keyed[keyed.duplicated(["point", "seed"], keep=False)].sort_values(["point", "run_id"])
    if len(twins):
        first, second = twins["run_id"].iloc[:2]
        raise OsoError(
            f"runs {first} and {second}: alike in every column, so made by different settings that "
            "the tables do not hold; keep such studies in different results folders"
        )


def checkpoints(keyed: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """One row per run and evaluated step: `run` (row of `keyed`), `step`, and the splits' values.

    Sorted by run and step. Values are in the stored unit, NaN where missing or not finite.
    """
    seen = evaluations[evaluations["split"].isin(SPLITS)]
    run = pd.Index(keyed["run_id"]).get_indexer(pd.Index(seen["run_id"]))
    step = seen["step"].to_numpy()
    span = int(step.max(initial=0)) + 1
    places, row = np.unique(run * span + step, return_inverse=True)
    table = pd.DataFrame({"run": places // span, "step": places % span})
    values = seen["value"].to_numpy()
    for split in SPLITS:
        column = np.full(len(places), np.nan)
        here = ((seen["split"] == split) & np.isfinite(values)).to_numpy()
        column[row[here]] = values[here]
        table[split] = column
    return table


def _best_rows(table: pd.DataFrame, sign: np.ndarray, split: str) -> pd.DataFrame:
    """Each run's best checkpoint on a split, the earliest among equals."""
    score = (table[split] * sign).dropna()
    return table.loc[score.groupby(table["run"]).idxmax()]


def run_values(runs: pd.DataFrame, evaluations: pd.DataFrame, rule: str = "best") -> pd.DataFrame:
    """One row per run: `add_keys`, and what the rule takes from its evaluations (`choose`)."""
    keyed = add_keys(runs, evaluations)
    return choose(keyed, checkpoints(keyed, evaluations), rule)


def choose(keyed: pd.DataFrame, table: pd.DataFrame, rule: str) -> pd.DataFrame:
    """The keyed runs, and what the rule takes from the table of their checkpoints.

    best, last: `value` and `selected_step`. cross: for each half h (even, odd) `chosen_h`, the best
    value on that half, and `value_h`, the other half's value at that step. Values are in the stored
    unit, NaN where no finite evaluation exists. Raises OsoError for an unknown rule.
    """
    if rule not in RULES:
        raise OsoError(f"rule {rule!r} is unknown; allowed: {', '.join(RULES)}")
    sign = _signs(keyed)[table["run"].to_numpy()]
    if rule == "cross":
        found = {}
        for half, other in (("even", "odd"), ("odd", "even")):
            rows = _best_rows(table, sign, f"test_{half}").set_index("run")
            found[f"chosen_{half}"] = rows[f"test_{half}"]
            found[f"value_{half}"] = rows[f"test_{other}"]
        return keyed.join(pd.DataFrame(found))
    if rule == "best":
        rows = _best_rows(table, sign, "test")
    else:
        rows = table.dropna(subset="test").drop_duplicates("run", keep="last")
    rows = rows.set_index("run")[["test", "step"]]
    return keyed.join(rows.rename(columns={"test": "value", "step": "selected_step"}))


def _signs(keyed: pd.DataFrame) -> np.ndarray:
    """1 where higher is better, -1 where lower is; 1 where there is no value at all."""
    signs = {m: 1.0 if higher else -1.0 for m, higher in HIGHER_IS_BETTER.items()}
    return keyed["metric"].map(signs).fillna(1.0).to_numpy(dtype=float)


def grid_points(values: pd.DataFrame) -> pd.DataFrame:
    """One row per grid point: mean and standard deviation (n - 1) over seeds, and counts.

    mean, std: stored unit; std is NaN for one seed. seeds: those with a value; runs, diverged:
    all of the point.
    """
    keep = ["cell", "variant", "metric", *CELL, *VARIANT, *POINT]
    points = values.drop_duplicates("point").set_index("point")[keep]
    groups = values.groupby("point")
    points[["mean", "std", "seeds"]] = groups["value"].agg(["mean", "std", "count"])
    points["runs"] = groups.size()
    points["diverged"] = (values["status"] == "diverged").groupby(values["point"]).sum()
    return points.reset_index()


def main_variants(points: pd.DataFrame) -> pd.DataFrame:
    """For each cell the points of one setting: the default one, else that with the most runs.

    The default is momentum 0.9 (null where the method has its own) and the paper's ten epochs; the
    first counts more. Which settings are shown must not depend on how well they did.
    """
    default = points["momentum"].isna() | np.isclose(points["momentum"], DEFAULT_MOMENTUM)
    ranked = points.assign(default=2 * default + (points["epochs"] == DEFAULT_EPOCHS))
    ranked["variant_runs"] = ranked.groupby("variant")["runs"].transform("sum")
    ranked = ranked.sort_values(
        ["cell", "default", "variant_runs", "variant"], ascending=[True, False, False, True]
    )
    main = ranked.drop_duplicates("cell")["variant"]
    return points[points["variant"].isin(main)]


def best_of_grid(points: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: its best grid point, of equals the first in the order of keys.

    Adds `points` (grid points with a run), `cell_runs` and `cell_diverged`. A cell in which no
    run has a value keeps a row with NaN for mean and hyperparameters.
    """
    main = main_variants(points)
    score = (main["mean"] * _signs(main)).fillna(-np.inf)
    best = main.loc[score.groupby(main["cell"]).idxmax()].set_index("cell")
    best.loc[best["mean"].isna(), POINT] = np.nan
    cells = main.groupby("cell")
    best["points"] = cells.size()
    best["cell_runs"] = cells["runs"].sum()
    best["cell_diverged"] = cells["diverged"].sum()
    return best.reset_index()


def cross_of_grid(values: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """One row per cell under the rule `cross`; values: `choose` by it, points: `grid_points`.

    mean, std, seeds: over seeds that have a value both ways. even_*, odd_*: the hyperparameters
    chosen on each half. The counts are those of `best_of_grid`.
    """
    main = values[values["variant"].isin(main_variants(points)["variant"])]
    cells = best_of_grid(points).set_index("cell").drop(columns=["mean", "std", "seeds", *POINT])
    ways = []
    for half in ("even", "odd"):
        mean = main.groupby("point")[f"chosen_{half}"].mean()
        scored = main.drop_duplicates("point").set_index("point")[["cell", "metric", *POINT]]
        score = (mean * _signs(scored)).dropna()
        chosen = score.groupby(scored["cell"]).idxmax()
        cells = cells.join(scored.loc[chosen].set_index("cell")[POINT].add_prefix(f"{half}_"))
        rows = main[main["point"].isin(chosen)]
        ways.append(rows.set_index(["cell", "seed"])[f"value_{half}"])
    both = (ways[0] + ways[1]) / 2  # NaN where a seed has no value one of the ways
    cells[["mean", "std", "seeds"]] = both.groupby("cell").agg(["mean", "std", "count"])
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    return cells.reset_index()
