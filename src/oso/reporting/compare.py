"""Each cell of the paper's design beside ours, as tidy data in the printed unit.

A cell is one data set, k, epsilon and method. Its row holds the paper's best hyperparameters and
value, ours under both selection rules, and ours at the paper's own grid point.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from oso.errors import OsoError
from oso.reporting import labels
from oso.reporting.budget import grid_size
from oso.reporting.paper import SEEDS, find_table, paper_results
from oso.reporting.select import CELL, POINT, best_of_grid, grid_points, main_variants, run_values

SAME_POINT = 0.02  # the paper prints three or four digits: relative tolerance for its grid points

COLUMNS = [
    "table",
    *CELL,
    "metric",
    "unit",
    "status",  # run, diverged (no run has a value), or not run
    *(f"paper_{name}" for name in (*POINT, "mean", "std", "seeds", "note")),
    *POINT,
    "mean",
    "std",
    "seeds",
    "runs",
    "diverged",
    "best_runs",  # runs of the best grid point, and how many of them diverged
    "best_diverged",
    "grid_points",
    "grid_size",
    "noise_multiplier",
    "difference",  # mean - paper_mean
    "at_paper_mean",
    "at_paper_std",
    "at_paper_seeds",
    "last_mean",
    "last_std",
    *(f"last_{name}" for name in POINT),
]

_COUNTS = [
    *("table", "k", "paper_seeds", "seeds", "runs", "diverged", "best_runs", "best_diverged"),
    *("grid_points", "grid_size", "at_paper_seeds"),
]


@dataclass(frozen=True)
class Study:
    """Everything that the report is computed from: verified rows and the optional budget."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame
    budget: pd.DataFrame
    prices: Mapping[tuple, float] = field(default_factory=dict)  # see `prices.read_prices`
    cosine: pd.DataFrame = field(default_factory=pd.DataFrame)  # see `cosine.read_cosine`

    @cached_property
    def values(self) -> pd.DataFrame:
        """One row per run under the rule `best`, see `select.run_values`."""
        return run_values(self.runs, self.evaluations, "best")

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per grid point under the rule `best`."""
        return grid_points(self.values)

    @cached_property
    def best(self) -> pd.DataFrame:
        """One row per cell that was run under the rule `best`."""
        return best_of_grid(self.points)

    @cached_property
    def last(self) -> pd.DataFrame:
        """One row per cell that was run under the rule `last`, selection of the point included."""
        return best_of_grid(grid_points(run_values(self.runs, self.evaluations, "last")))

    @cached_property
    def best_runs(self) -> pd.DataFrame:
        """The runs of every cell's best grid point."""
        return self.values[self.values["point"].isin(self.best["point"])]

    @cached_property
    def compared(self) -> dict[tuple[str, int], pd.DataFrame]:
        """What `compare` has computed already."""
        return {}

    @cached_property
    def datasets(self) -> list[str]:
        return labels.dataset_order(self.runs["dataset"].unique())

    @cached_property
    def methods(self) -> list[str]:
        return labels.method_order(self.runs["method"].unique())


def compare(study: Study, dataset: str, k: int) -> pd.DataFrame:
    """One row per epsilon and method of a data set at a k, columns `COLUMNS`.

    Holds every cell of the paper's table and every cell that was run; NoDP comes last.
    """
    if (dataset, k) not in study.compared:
        study.compared[dataset, k] = _compare(study, dataset, k)
    return study.compared[dataset, k].copy()


def _compare(study: Study, dataset: str, k: int) -> pd.DataFrame:
    table = find_table(dataset, k)
    paper = paper_results()
    paper = paper[(paper["dataset"] == dataset) & (paper["k"] == k)]
    best, last = (_of(frame, dataset, k) for frame in (study.best, study.last))
    points = main_variants(_of(study.points, dataset, k))
    found = best["metric"].dropna().unique()
    metric = table.metric if table else (found[0] if len(found) else "")
    cells = {(_epsilon(row.epsilon), row.method) for row in paper.itertuples()}
    cells |= {(_epsilon(row.epsilon), row.method) for row in best.itertuples()}
    order = labels.method_order({method for _, method in cells})
    rows = []
    for epsilon, method in sorted(cells, key=lambda c: (c[0] is None, c[0], order.index(c[1]))):
        theirs = _one(paper, epsilon, method)
        ours = _one(best, epsilon, method)
        row = {
            "table": table.number if table else None,
            "dataset": dataset,
            "k": k,
            "epsilon": epsilon,
            "method": method,
            "metric": metric,
            "unit": labels.metric_unit(metric),
            "grid_size": grid_size(dataset, method, k, study.budget),
            "status": "not run",
        }
        if theirs is not None:
            row |= {f"paper_{n}": theirs[n] for n in (*POINT, "mean", "std", "note")}
            row["paper_seeds"] = math.nan if pd.isna(theirs["mean"]) else SEEDS
        if ours is not None:
            _refuse_more_than_was_paid(row, ours)
            row |= _ours(ours, _one(last, epsilon, method), metric)
            row["difference"] = row["mean"] - row.get("paper_mean", math.nan)
            if theirs is not None:
                row |= _at_paper(points, theirs, epsilon, method, metric)
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(_COUNTS, "Int64"))


def _refuse_more_than_was_paid(row: dict, ours: pd.Series) -> None:
    """The noise is that of a grid of N runs; the best of more than N points would cost more."""
    size = row["grid_size"]
    if size is not None and not pd.isna(row["epsilon"]) and ours["points"] > size:
        raise OsoError(
            f"{row['dataset']}, {row['method']}, k = {row['k']}, epsilon = {row['epsilon']:g}: "
            f"{ours['points']} points of a grid of {size}; keep the results of different grids in "
            "different folders"
        )


def _of(frame: pd.DataFrame, dataset: str, k: int) -> pd.DataFrame:
    return frame[(frame["dataset"] == dataset) & (frame["k"] == k)]


def _epsilon(epsilon: float) -> float | None:
    return None if pd.isna(epsilon) else float(epsilon)


def _cell(frame: pd.DataFrame, epsilon: float | None, method: str) -> pd.DataFrame:
    same = frame["epsilon"].isna() if epsilon is None else frame["epsilon"] == epsilon
    return frame[same & (frame["method"] == method)]


def _one(frame: pd.DataFrame, epsilon: float | None, method: str) -> pd.Series | None:
    rows = _cell(frame, epsilon, method)
    return None if rows.empty else rows.iloc[0]


def _ours(best: pd.Series, last: pd.Series | None, metric: str) -> dict:
    factor = labels.scale(metric)
    row = {name: best[name] for name in (*POINT, "seeds", "noise_multiplier")}
    row |= {
        "status": "diverged" if pd.isna(best["mean"]) else "run",
        "mean": best["mean"] * factor,
        "std": best["std"] * factor,
        "runs": best["cell_runs"],
        "diverged": best["cell_diverged"],
        "best_runs": best["runs"],
        "best_diverged": best["diverged"],
        "grid_points": best["points"],
    }
    if last is not None:
        row |= {"last_mean": last["mean"] * factor, "last_std": last["std"] * factor}
        row |= {f"last_{name}": last[name] for name in POINT}
    return row


def _at_paper(
    points: pd.DataFrame, theirs: pd.Series, epsilon: float | None, method: str, metric: str
) -> dict:
    names = [n for n in labels.tuned(method) if not pd.isna(theirs[n])]
    mine = _cell(points, epsilon, method)
    for name in names:
        mine = mine[np.isclose(mine[name], theirs[name], rtol=SAME_POINT, atol=0)]
    if not names or mine.empty:
        return {}
    factor = labels.scale(metric)
    at = mine.iloc[0]
    return {
        "at_paper_mean": at["mean"] * factor,
        "at_paper_std": at["std"] * factor,
        "at_paper_seeds": at["seeds"],
    }
