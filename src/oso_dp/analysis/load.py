"""The one place where reporting reads results."""

from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.results.read import read_results


def load(results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables `runs` and `evaluations` of a results folder.

    Raises OsoError where the folder is missing, holds no run, or is not of this schema.
    """
    results = Path(results)
    if not results.is_dir():
        raise OsoError(f"{results}: no such results folder; give one with runs and evaluations")
    stored = read_results(results)
    if stored.runs.empty:
        raise OsoError(f"{results}: holds no runs yet; run a study first")
    return stored.runs, stored.evaluations
