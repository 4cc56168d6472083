"""The runs that contribute to a cell's value."""

from dataclasses import dataclass

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.values import CELL
from oso_dp.analysis.result_set import ResultSet

# Data set, k, epsilon (None without privacy), method.
CellKey = tuple[str, int, float | None, str]


@dataclass(frozen=True)
class ContributingRun:
    """A run of a cell's best grid point."""

    run_id: str
    seed: int
    value: float  # printed unit; NaN for a run that diverged without one


def contributing_runs(study: ResultSet) -> dict[CellKey, list[ContributingRun]]:
    """For each cell the runs whose mean is its value, by seed."""

    def compute() -> dict[CellKey, list[ContributingRun]]:
        behind: dict[CellKey, list[ContributingRun]] = {}
        for row in study.best_runs.sort_values(["seed", "run_id"]).to_dict("records"):
            value = row["value"] * labels.display_factor(row["metric"])
            run = ContributingRun(str(row["run_id"]), int(row["seed"]), float(value))
            behind.setdefault(cell_key(row), []).append(run)
        return behind

    return study.cache_table("runs behind", compute)


def cell_key(row: dict | pd.Series) -> CellKey:
    """The key of a row with the columns `grouping.CELL`."""
    dataset, k, epsilon, method = (row[name] for name in CELL)
    return dataset, int(k), None if pd.isna(epsilon) else float(epsilon), method
