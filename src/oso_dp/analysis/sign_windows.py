"""Online's signs with and without noise over windows of steps, from `oso diagnose signs`."""

import numpy as np
import pandas as pd
from scipy.special import ndtr

WIDTH = 50  # steps of a stretch
# What a sign moves -> the column of its product; `true_*` is that without noise.
SIGN_PRODUCTS = {"threshold": "direction", "learning_rate": "gradient"}


def sign_windows(rows: pd.DataFrame, width: int = WIDTH) -> pd.DataFrame:
    """A row per run, value (a key of `PRODUCTS`) and stretch of `width` steps.

    rows: as `measured.read_signs` gives them. Columns run_id, dataset, value; first, last (steps);
    the share of the signs that were + as released (up) and without noise (true_up), and that one
    expects of the sums without noise and noise that is independent of them (expected_up); of those
    that the noise left as they were (right), and that differ from the step before (turned).
    Products of zero are neither + nor -. The last stretch may be shorter.
    """
    parts = [
        _windows(run, value, product, width)
        for _, run in rows.groupby("run_id", sort=False)
        for value, product in SIGN_PRODUCTS.items()
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _windows(run: pd.DataFrame, value: str, product: str, width: int) -> pd.DataFrame:
    seen = np.sign(run[product].fillna(0.0))
    true = np.sign(run[f"true_{product}"].fillna(0.0))
    steps = pd.DataFrame(
        {
            "step": run["step"],
            "up": seen > 0,
            "true_up": true > 0,
            "expected_up": ndtr(run[f"{product}_z"].fillna(0.0)),
            "right": seen == true,
            "turned": (seen != seen.shift()).where(seen.shift().notna()),
        }
    )
    means = ["up", "true_up", "expected_up", "right", "turned"]
    stretches = steps.astype(dict.fromkeys(means, float)).groupby((run["step"] - 1) // width)
    table = stretches[means].mean()
    table.insert(0, "last", stretches["step"].max())
    table.insert(0, "first", stretches["step"].min())
    table.insert(0, "value", value)
    for name in ("dataset", "run_id"):
        table.insert(0, name, run[name].iloc[0])
    return table.reset_index(drop=True)
