"""Grouping keys of runs: cell, variant and grid point.

Rows of a study become values of runs (`checkpoint_selection`), then grid points (`aggregate`), then
`cells` beside the paper's values; every step groups by these keys.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.metrics import METRICS, is_higher_better
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
_DIGITS = 9  # significant digits: a grid value computed on two machines may differ in its last bit


def add_keys(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """Add the column `metric` and three integer keys; rows are sorted by the keys.

    The keys are `cell` (columns `CELL`), `variant_key` (also `VARIANT`) and `point` (also `POINT`).
    They do not depend on the order of the rows.

    Raises:
        OsoError: A data set has two metrics, or two runs differ only in their identity.
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
    """Runs that differ only in their identity differ in unknown options: do not average them."""
    twins = keyed[keyed.duplicated(["point", "seed"], keep=False)].sort_values(["point", "run_id"])
    if len(twins):
        first, second = twins["run_id"].iloc[:2]
        raise OsoError(
            f"runs {first} and {second}: identical in every column, so they differ in options "
            "that the tables do not store; store such studies in different results folders"
        )


def metric_directions(keyed: pd.DataFrame) -> np.ndarray:
    """1 where a higher value is better, -1 where a lower one is; 1 without a metric."""
    sign = {name: 1.0 if metric.higher_is_better else -1.0 for name, metric in METRICS.items()}
    return keyed["metric"].map(sign).fillna(1.0).to_numpy(dtype=float)
