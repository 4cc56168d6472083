"""The candidates of a grid search: k values per log-uniform axis (Galli et al., "Experiments").

Or those that the paper reports as best, matched to its rounded values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.paper.best_points import best_points
from oso_dp.study.cohort import Cohort

if TYPE_CHECKING:
    from oso_dp.study.config import GridSection


def log_uniform(low: float, high: float, k: int) -> list[float]:
    """k values from 10^low to 10^high, evenly spaced in the logarithm.

    Rounded to six digits: run identities use them, and the last bit differs between machines.
    """
    steps = [low + (high - low) * i / (k - 1) for i in range(k)] if k > 1 else [(low + high) / 2]
    return [float(f"{10**exponent:.6g}") for exponent in steps]


def make_candidates(axes: tuple[str, ...], grid: GridSection, k: int) -> list[dict[str, float]]:
    """All combinations of the axes' values, the first axis slowest."""
    values = {
        "learning_rate": log_uniform(*grid.log10_learning_rate, k),
        "threshold": log_uniform(*grid.log10_threshold, k),
        "quantile": list(grid.quantiles),
    }
    return [
        dict(zip(axes, combination, strict=True))
        for combination in product(*(values[axis] for axis in axes))
    ]


@cache
def default_grid_size(method: str, k: int) -> int:
    """N of a method's grid with the paper's ranges and quantiles."""
    from oso_dp.study.config import GridSection

    return len(make_candidates(find_method(method).search, GridSection(), k))


Candidate = dict[str, float]


def nearest_to_papers_best(cohort: Cohort, grid: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of a grid (axis name to value) that the paper's tables list as best.

    OsoError where a printed value is not a point of the grid.
    """
    chosen = []
    for best in best_points():
        cell = best.dataset, best.method, best.k, best.epsilon
        if cell != (cohort.dataset, cohort.method, cohort.k, cohort.epsilon):
            continue
        printed = {axis: getattr(best, axis) for axis in grid[0]}
        nearest = min(grid, key=lambda candidate: _distance(candidate, printed))
        if _distance(nearest, printed) > math.log(1.02):
            raise OsoError(
                f"table {best.table}, {best.method}, epsilon {best.epsilon}: {printed} is not a "
                "point of the grid; grid_points: paper_best needs the paper's ranges"
            )
        if nearest not in chosen:
            chosen.append(nearest)
    return chosen


def paper_best_runs(cohort: Cohort) -> set[str]:
    """Identities of a cohort's runs at these points; empty for a grid of other ranges."""
    axes = find_method(cohort.method).search
    grid = [{axis: getattr(run, axis) for axis in axes} for run in cohort.runs]
    try:
        chosen = nearest_to_papers_best(cohort, grid)
    except OsoError:
        return set()
    return {run.run_id for run, at in zip(cohort.runs, grid, strict=True) if at in chosen}


def _distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return max(abs(math.log(one[axis] / other[axis])) for axis in one)
