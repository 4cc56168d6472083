"""Figure 1's numbers: what `oso cosine` wrote into the results folder."""

from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError

COSINE = "cosine.csv"  # in a results folder
COLUMNS = [
    *("dataset", "method", "k", "epsilon", "learning_rate", "noise_multiplier"),
    *("step", "threshold", "run_threshold", "realisations"),
    *("batch_mean", "batch_std", "data_mean", "data_std"),
]


def read_cosine(path: Path) -> pd.DataFrame:
    """The table, columns `COLUMNS` and more; empty where there is no file.

    Raises OsoError for a file that is none of ours.
    """
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    try:
        found = pd.read_csv(path)
        numbers = found[COLUMNS].drop(columns=["dataset", "method"])
        whole = numbers.drop(columns="run_threshold").astype("float64").notna().all(axis=None)
    except (OSError, ValueError, KeyError) as error:
        raise OsoError(
            f"{path}: not a table of cosines ({' '.join(str(error).split())}); `oso cosine` "
            "writes one"
        ) from None
    if found.empty or not whole:
        raise OsoError(f"{path}: rows or numbers are missing; `oso cosine` writes a whole table")
    if len(found[["dataset", "method", "k", "epsilon", "learning_rate"]].drop_duplicates()) > 1:
        raise OsoError(f"{path}: holds more than one run; keep each in a file of its own")
    return found
