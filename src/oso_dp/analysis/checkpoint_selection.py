"""Checkpoint selection: which evaluation represents a run, decided when results are read.

A rule also decides on which test examples the grid's best point is selected:

- `best`: the best checkpoint on the test set, as in the paper. The same examples select and
  report, so the value is neither private nor unbiased.
- `last`: the last checkpoint. The grid's point is still selected on the test set.
- `cross`: cross-selection. Checkpoint and point are selected on one half of the test set (even- or
  odd-numbered examples) and reported on the other; the value is the mean of both directions. No
  example selects a value that it evaluates.
"""

import numpy as np
import pandas as pd

from oso_dp.analysis.values import metric_directions
from oso_dp.errors import OsoError
from oso_dp.results.schema import SPLITS

CHECKPOINT_RULES = ("best", "last", "cross")


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


def select_checkpoints(keyed: pd.DataFrame, table: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Add the values that a checkpoint rule selects to the keyed runs.

    Args:
        keyed: Runs with their keys (`grouping.add_keys`).
        table: Their checkpoints (`checkpoints_by_rule`).
        rule: One of `CHECKPOINT_RULES`.

    Returns:
        For `best` and `last` with the columns `value` and `selected_step`. For `cross`, for each
        half h (even, odd), with `chosen_h`, the best value on that half, and `value_h`, the other
        half's value at that step. Values are in the stored unit; NaN without a finite evaluation.

    Raises:
        OsoError: The rule is unknown.
    """
    if rule not in CHECKPOINT_RULES:
        raise OsoError(f"checkpoint rule: {rule!r}; allowed are {', '.join(CHECKPOINT_RULES)}")
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
