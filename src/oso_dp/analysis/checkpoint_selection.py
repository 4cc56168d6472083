"""Which checkpoint counts as a run's best is decided here, when reading.

A rule says which checkpoint stands for a run, and by which test examples it and the grid's best
point are chosen:

- `best`: the best checkpoint on the test set, as in the paper. The same examples choose and report,
  so it is neither private nor an honest estimate.
- `last`: the last checkpoint. The grid's point is still chosen on the test set.
- `cross`: checkpoint and point are chosen on one half of the test set (even- or odd-numbered
  examples) and reported on the other; the mean of both ways. No example has a part in the choice of
  what it judges.
"""

import numpy as np
import pandas as pd

from oso_dp.analysis.grouping import metric_directions
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
    """The keyed runs, and what the rule takes from the table of their checkpoints.

    best, last: `value` and `selected_step`. cross: for each half h (even, odd) `chosen_h`, the best
    value on that half, and `value_h`, the other half's value at that step. Values are in the stored
    unit, NaN where no finite evaluation exists. Raises OsoError for an unknown rule.
    """
    if rule not in CHECKPOINT_RULES:
        raise OsoError(f"rule {rule!r} is unknown; allowed: {', '.join(CHECKPOINT_RULES)}")
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
