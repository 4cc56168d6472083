"""What a checkpoint rule makes of made-up rows."""

import pandas as pd

from oso_dp.analysis.checkpoint_rules import checkpoints, choose
from oso_dp.analysis.keys import add_keys


def run_values(runs: pd.DataFrame, evaluations: pd.DataFrame, rule: str = "best") -> pd.DataFrame:
    """One row per run: its keys, and what the rule takes from its evaluations."""
    keyed = add_keys(runs, evaluations)
    return choose(keyed, checkpoints(keyed, evaluations), rule)
