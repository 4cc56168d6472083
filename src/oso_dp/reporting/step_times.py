"""What a step of one method takes beside another's: what `make step-times` wrote into the results.

Measured on a quiet machine, both in turns; a run's wall time says too much of what ran beside it.
"""

from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError

STEP_TIMES = "step_times.csv"  # in a results folder
COLUMNS = [
    *("dataset", "model", "device", "precision", "method", "rival"),
    *("turns", "ratio", "low", "high"),  # of the seconds per step, with its 95 % interval
]


def read_step_times(path: Path) -> pd.DataFrame:
    """The table, columns `COLUMNS` and more; empty where there is no file.

    Raises OsoError for a file that is none of ours.
    """
    if not path.exists():
        return no_step_times()
    try:
        found = pd.read_csv(path)
        numbers = found[["turns", "ratio", "low", "high"]].astype("float64")
        sound = bool(found[COLUMNS].notna().all(axis=None) and (numbers > 0).all(axis=None))
    except (OSError, ValueError, KeyError) as error:
        raise OsoError(
            f"{path}: not a table of step times ({' '.join(str(error).split())}); "
            "`make step-times` writes one"
        ) from None
    if found.empty or not sound:
        raise OsoError(f"{path}: rows or numbers are missing; `make step-times` writes a table")
    return found


def no_step_times() -> pd.DataFrame:
    """A table without a row."""
    return pd.DataFrame(columns=COLUMNS)
