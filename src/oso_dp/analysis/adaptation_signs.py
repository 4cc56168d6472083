"""How often Online's two adaptation signs were +, from the stored C_t and rho_t.

A + multiplies C by exp(rate), a - by exp(-rate) (equations 20 and 21). Two values of C therefore
give the number of + minus the number of - between them, but not their order. Measured signs, with
and without noise, are averaged over windows of steps.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from oso_dp.study.identity import parse_method_options

METHOD = "online"  # its variants do not take steps of constant length
# Adapted value -> the option of the method that holds its adaptation rate.
RATES = {"threshold": "threshold_rate", "learning_rate": "learning_rate_rate"}
CONFIDENCE_Z = 1.96  # 95 % quantile interval of the standard normal distribution


def count_adaptation_signs(runs: pd.DataFrame, evaluations: pd.DataFrame) -> pd.DataFrame:
    """One row per run of Online, evaluation and adapted value.

    Columns: run_id, dataset, k, epsilon, seed, value (a key of `RATES`), rate; step, factor (the
    value divided by the run's first one), moves (signs since the previous evaluation), up (the
    fraction of + among them) and net (number of + minus number of - so far). Runs without stored
    options are left out, and so are runs with a rate of 0.
    """
    rows = runs[(runs["method"] == METHOD) & runs["method_options"].notna()]
    seen = evaluations[evaluations["split"] == "test"].sort_values("step")
    by_run = dict(list(seen.groupby("run_id")))
    parts = [
        _count_signs(run, by_run[run["run_id"]], value)
        for run in rows.to_dict("records")
        if run["run_id"] in by_run
        for value in RATES
    ]
    parts = [part for part in parts if part is not None]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


COLUMNS = [
    *("run_id", "dataset", "k", "epsilon", "seed", "value", "rate"),
    *("step", "factor", "moves", "up", "net"),
]


def _count_signs(run: dict[str, Any], seen: pd.DataFrame, value: str) -> pd.DataFrame | None:
    rate = parse_method_options(run["method_options"]).get(RATES[value], 0.0)
    seen = seen[np.isfinite(seen[value]) & (seen[value] > 0)]
    if not rate or seen.empty:
        return None
    step, factor = seen["step"].to_numpy(), seen[value].to_numpy(float) / run[value]
    net = np.log(factor) / rate
    moved = step - 1  # nothing moves at the first step
    moves = np.diff(moved, prepend=0)
    mean_sign = np.diff(net, prepend=0.0) / np.maximum(moves, 1)
    known = {name: run[name] for name in ("run_id", "dataset", "k", "epsilon", "seed")}
    columns = {"step": step, "factor": factor, "moves": moves, "up": (1 + mean_sign) / 2}
    return pd.DataFrame(known | {"value": value, "rate": rate} | columns | {"net": net})[COLUMNS]


def coin_factor(steps: np.ndarray, rate: float) -> np.ndarray:
    """exp of 1.96 standard deviations of the walk that `steps` fair coins make at this rate.

    A value steered by them is with probability 95 % between its start over this and its start
    times this.
    """
    return np.exp(CONFIDENCE_Z * rate * np.sqrt(np.maximum(steps - 1, 0)))


def coin_flip_fraction(moves: int) -> float:
    """How far from one half the share of heads is at most, with probability 95 %."""
    return CONFIDENCE_Z / 2 / float(np.sqrt(moves))


WIDTH = 50  # steps of a window
# Adapted value -> the column of the sign's product; `true_*` is the product without noise.
SIGN_PRODUCTS = {"threshold": "direction", "learning_rate": "gradient"}


def sign_windows(rows: pd.DataFrame, width: int = WIDTH) -> pd.DataFrame:
    """One row per run, value (a key of `SIGN_PRODUCTS`) and window of `width` steps.

    Args:
        rows: Of `side_measurements.ADAPTATION_SIGNS`.
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
