"""Values of runs and grid points: keys, checkpoint selection, means, the best point of a grid.

Rows of a study become values of runs, then grid points, then `cells` beside the paper's values;
every step groups by the same keys. A grid point's value is the mean over its seeds, and a grid's is
that of its best point. Diverged runs count with what they reached before diverging.

A checkpoint rule decides which evaluation represents a run, and on which test examples the grid's
best point is selected:

- `best`: the best checkpoint on the test set, as in the paper. The same examples select and
  report, so the value is neither private nor unbiased.
- `last`: the last checkpoint. The grid's point is still selected on the test set.
- `cross`: cross-selection. Checkpoint and point are selected on one half of the test set (even- or
  odd-numbered examples) and reported on the other; the value is the mean of both directions. No
  example selects a value that it evaluates.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from oso_dp import labels
from oso_dp.defaults import MOMENTUM
from oso_dp.errors import OsoError
from oso_dp.metrics import METRICS, is_higher_better
from oso_dp.paper.tables import PAPER_EPOCHS
from oso_dp.results.schema import SPLITS
from oso_dp.study import identity

CELL = ["dataset", "k", "epsilon", "method"]
POINT = [*identity.POINT]
# Runs that differ in one of these columns are never averaged.
VARIANT = [
    "delta",
    "search_accounting",
    "momentum",
    "sampling",
    "examples",
    "batch_size",
    "epochs",
    "noise_multiplier",
    "query_noise_multiplier",
    "precision",
    *identity.OPTIONS,
]
# Values are compared only if they agree on these: each changes a value by as much as the method,
# an untuned start or the search strategy does.
COMPARABLE_ON = ["precision", "epochs", "delta"]
_CONSEQUENCES = ["noise_multiplier", "query_noise_multiplier"]  # of other columns
_DIGITS = 9  # significant digits: a grid value computed on two machines may differ in its last bit


def add_keys(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add the column `metric` and three integer keys; rows are sorted by the keys.

    The keys are `cell` (columns `CELL`), `variant_key` (also `VARIANT`) and `point` (also `POINT`).
    They do not depend on the order of the rows.

    Raises:
        OsoError: A data set has two metrics, or two runs of one seed are at one point.
    """
    keyed = runs.assign(metric=_metrics(runs, evaluations))
    rounded = keyed[CELL + VARIANT + POINT].copy()
    for name in rounded.columns[[t.kind == "f" for t in rounded.dtypes]]:
        rounded[name] = _round(rounded[name].to_numpy())
    for key, columns in (
        ("cell", CELL),
        ("variant_key", CELL + VARIANT),
        ("point", CELL + VARIANT + POINT),
    ):
        keyed[key] = rounded.groupby(columns, dropna=False, sort=True).ngroup()
    keyed[POINT] = rounded[POINT]
    _check_unique(keyed)
    return keyed.sort_values(["point", "seed", "run_id"], kind="stable").reset_index(drop=True)


def are_comparable(
    one: Mapping[str, Any] | pd.Series, other: Mapping[str, Any] | pd.Series
) -> bool:
    """Whether two values, each with the columns `COMPARABLE_ON`, may be compared."""
    return all(one[name] == other[name] for name in COMPARABLE_ON)


def _round(values: np.ndarray) -> np.ndarray:
    """Floats to `_DIGITS` significant digits; 0, NaN and infinities stay."""
    known = np.isfinite(values) & (values != 0)
    size = np.floor(np.log10(np.abs(values), where=known, out=np.zeros_like(values)))
    unit = 10.0 ** (_DIGITS - 1 - size)
    return np.where(known, np.round(values * unit) / unit, values)


def _metrics(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.Series:
    of_run = evaluations[["run_id", "metric"]].drop_duplicates()
    by_dataset = of_run.merge(runs[["run_id", "dataset"]], on="run_id")
    by_dataset = by_dataset.groupby("dataset")["metric"].unique()
    for dataset, metrics in by_dataset.items():
        if len(metrics) > 1:
            names = ", ".join(sorted(metrics))
            raise OsoError(f"evaluations: data set {dataset} has metrics {names}; one is allowed")
        is_higher_better(metrics[0])
    return runs["dataset"].map({dataset: metrics[0] for dataset, metrics in by_dataset.items()})


def _check_unique(keyed: pd.DataFrame) -> None:
    """Two runs with the same seed at what counts as one point are not to be averaged."""
    twins = keyed[keyed.duplicated(["point", "seed"], keep=False)].sort_values(["point", "run_id"])
    if len(twins):
        first, second = twins["run_id"].iloc[:2]
        raise OsoError(
            f"runs {first} and {second}: identical in every column, to {_DIGITS} digits; keep them "
            "in different results folders"
        )


def metric_directions(keyed: pd.DataFrame) -> np.ndarray:
    """1 where a higher value is better, -1 where a lower one is; 1 without a metric."""
    sign = {name: 1.0 if metric.higher_is_better else -1.0 for name, metric in METRICS.items()}
    return keyed["metric"].map(sign).fillna(1.0).to_numpy(dtype=float)


def best_row(rows: pd.DataFrame, column: str = "mean") -> pd.Series:
    """The first row with the best value in a column; one needs a value."""
    return rows.loc[(rows[column] * metric_directions(rows)).idxmax()]


def sort_as_paper(data: pd.DataFrame) -> pd.DataFrame:
    """Rows in the paper's order of data sets, k, epsilon (none last) and methods."""
    datasets = labels.sort_datasets(data["dataset"])
    methods = labels.sort_methods(data["method"])
    ranked = data.assign(
        _dataset=data["dataset"].map(datasets.index), _method=data["method"].map(methods.index)
    )
    by = ["_dataset", "k", "epsilon", "_method"]
    ranked = ranked.sort_values(by, kind="stable", na_position="last")
    return ranked.drop(columns=["_dataset", "_method"]).reset_index(drop=True)


def variant_label(schedule: str | None, averaging: float | None) -> str:
    """The label of the schedule and of the averaging's decay, as in the rows; empty without."""
    words = [] if pd.isna(schedule) else ["rate falling"]
    words += [] if pd.isna(averaging) else [f"averaged, {averaging:g}"]
    return ", ".join(words)


def variant_labels(rows: pd.DataFrame) -> list[str]:
    """The label of each row."""
    return [variant_label(*pair) for pair in zip(rows["schedule"], rows["averaging"], strict=True)]


CheckpointRule = Literal["best", "last", "cross"]


def checkpoints_by_rule(keyed: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
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


def select_checkpoints(
    keyed: pd.DataFrame, table: pd.DataFrame, rule: CheckpointRule
) -> pd.DataFrame:
    """Add the values that a checkpoint rule selects to the keyed runs.

    Args:
        keyed: Runs with their keys (`add_keys`).
        table: Their checkpoints (`checkpoints_by_rule`).
        rule: By which to select.

    Returns:
        For `best` and `last` with the columns `value` and `selected_step`. For `cross`, for each
        half h (even, odd), with `chosen_h`, the best value on that half, and `value_h`, the other
        half's value at that step. Values are in the stored unit; NaN without a finite evaluation.
    """
    sign = metric_directions(keyed)[table["run"].to_numpy()]
    if rule == "cross":
        columns = {}
        for half, other in (("even", "odd"), ("odd", "even")):
            rows = _best_rows(table, sign, f"test_{half}").set_index("run")
            columns[f"chosen_{half}"] = rows[f"test_{half}"]
            columns[f"value_{half}"] = rows[f"test_{other}"]
        return keyed.join(pd.DataFrame(columns))
    if rule == "best":
        rows = _best_rows(table, sign, "test")
    else:
        rows = table.dropna(subset="test").drop_duplicates("run", keep="last")
    rows = rows.set_index("run")[["test", "step"]]
    return keyed.join(rows.rename(columns={"test": "value", "step": "selected_step"}))


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
    default = points["momentum"].isna() | np.isclose(points["momentum"], MOMENTUM)
    ranked = points.assign(default=4 * plain + 2 * default + (points["epochs"] == PAPER_EPOCHS))
    ranked["variant_runs"] = ranked.groupby("variant_key")["runs"].transform("sum")
    ranked = ranked.sort_values(
        ["cell", "default", "variant_runs", "variant_key"], ascending=[True, False, False, True]
    )
    main = ranked.drop_duplicates("cell")["variant_key"]
    return points[points["variant_key"].isin(main)]


def hidden_variants(points: pd.DataFrame) -> tuple[int, list[str]]:
    """How many cells have a variant that is not their main one, and the columns that differ."""
    shown = main_variants(points).drop_duplicates("cell").set_index("cell")
    hidden = points[~points["variant_key"].isin(shown["variant_key"])]
    hidden = hidden.drop_duplicates("variant_key").reset_index(drop=True)
    beside = shown.loc[hidden["cell"], VARIANT].reset_index(drop=True)
    same = (hidden[VARIANT] == beside) | (hidden[VARIANT].isna() & beside.isna())
    differing = [name for name in VARIANT if not same[name].all()]
    causes = [name for name in differing if name not in _CONSEQUENCES]
    return hidden["cell"].nunique(), causes or differing


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
    """One row per cell under the rule `cross`; values: `select_checkpoints` by it, points:
    `grid_points`.

    mean, std, seeds: over seeds that have a value both ways. even_*, odd_*: the hyperparameters
    chosen on each half. The counts are those of `select_best_points`.
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
