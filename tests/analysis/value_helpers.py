"""What a checkpoint rule makes of made-up rows."""

import pandas as pd

from oso_dp.analysis.values import add_keys, checkpoints_by_rule, select_checkpoints


def run_values(runs: pd.DataFrame, evaluations: pd.DataFrame, rule: str = "best") -> pd.DataFrame:
    """One row per run: its keys, and what the rule takes from its evaluations."""
    keyed = add_keys(runs, evaluations)
    return select_checkpoints(keyed, checkpoints_by_rule(keyed, evaluations), rule)
