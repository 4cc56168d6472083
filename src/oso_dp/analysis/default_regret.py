"""Minimax regret of default configurations: the choice of `train_private`'s default.

The regret of a default at a data set and epsilon is its distance to the best default there, in
units of the data set's equivalence margin. A default must have been run at all pairs of data set
and epsilon. Where runs differ in precision, length or delta, the group with the most defaults
counts.
"""

from typing import Any

import numpy as np
import pandas as pd

from oso_dp.analysis.budget_strategies import DEFAULT, budget_strategies
from oso_dp.analysis.verdicts import MARGINS, RATIO_DATASETS, SEEDS_NEEDED
from oso_dp.analysis.values import COMPARABLE_ON
from oso_dp.analysis.result_set import ResultSet
from oso_dp.metrics import metric_direction

_DEFAULT = ["method", "variant"]
_CELL_KEY = ["dataset", "epsilon"]
COLUMNS = [
    *_DEFAULT,
    "loss",  # maximum regret, in units of the margin
    *_CELL_KEY,  # where it occurs
    "places",  # number of pairs of data set and epsilon
]


def max_regret(study: ResultSet) -> pd.DataFrame:
    """Maximum regret of each default, smallest first; columns `COLUMNS`.

    Only defaults that were run at all pairs of data set and epsilon at which at least two defaults
    have three seeds.
    """
    rows = budget_strategies(study)
    rows = rows[
        (rows["strategy"] == DEFAULT) & (rows["seeds"] >= SEEDS_NEEDED) & rows["mean"].notna()
    ]
    rows = rows[rows["dataset"].isin(MARGINS)]
    rows = _select_comparable(rows)
    rows = rows[rows.groupby(_CELL_KEY)["method"].transform("size") > 1]
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS)
    ratio = rows["dataset"].isin(RATIO_DATASETS)
    values = rows["mean"].mask(ratio, np.log(rows["mean"].where(ratio)))
    score = rows["metric"].map(metric_direction) * values / rows["dataset"].map(MARGINS)
    best = score.groupby([rows[name] for name in _CELL_KEY]).transform("max")
    rows = rows.assign(loss=best - score)
    places = len(rows[_CELL_KEY].drop_duplicates())
    made: list[dict[str, Any]] = []
    for _, judged in rows.groupby(_DEFAULT, sort=False):
        if len(judged) == places:
            worst = judged.loc[judged["loss"].idxmax()]
            made.append({**worst[[*_DEFAULT, "loss", *_CELL_KEY]], "places": places})
    return pd.DataFrame(made, columns=COLUMNS).sort_values("loss", ignore_index=True)


def _select_comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """At each pair the largest comparable group; ties are resolved by `COMPARABLE_ON`."""
    kinds = rows.groupby([*_CELL_KEY, *COMPARABLE_ON], as_index=False).size()
    kinds = kinds.sort_values("size", ascending=False, kind="stable").drop_duplicates(_CELL_KEY)
    return rows.merge(kinds[[*_CELL_KEY, *COMPARABLE_ON]])
