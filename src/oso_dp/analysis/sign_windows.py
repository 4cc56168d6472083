"""Online's adaptation signs with and without noise, averaged over windows of steps."""

import numpy as np
import pandas as pd
from scipy.special import ndtr

WIDTH = 50  # steps of a window
# Adapted value -> the column of the sign's product; `true_*` is the product without noise.
SIGN_PRODUCTS = {"threshold": "direction", "learning_rate": "gradient"}


def sign_windows(rows: pd.DataFrame, width: int = WIDTH) -> pd.DataFrame:
    """One row per run, value (a key of `SIGN_PRODUCTS`) and window of `width` steps.

    Args:
        rows: From `side_measurements.read_signs`.
        width: Steps of a window; the last window may be shorter.

    Returns:
        Columns run_id, dataset, value; first, last (steps); and fractions of the signs: + as
        released (up), + without noise (true_up), + as expected for independent noise on the
        noiseless sums (expected_up), unchanged by the noise (right) and different from the
        previous step (turned). Products of zero are neither + nor -.
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
    windows = steps.astype(dict.fromkeys(means, float)).groupby((run["step"] - 1) // width)
    table = windows[means].mean()
    table.insert(0, "last", windows["step"].max())
    table.insert(0, "first", windows["step"].min())
    table.insert(0, "value", value)
    for name in ("dataset", "run_id"):
        table.insert(0, name, run[name].iloc[0])
    return table.reset_index(drop=True)
