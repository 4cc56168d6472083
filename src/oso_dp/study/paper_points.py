"""Points of a grid that the paper reports as best, matched to its rounded values."""

import math
from collections.abc import Mapping, Sequence

from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.paper.best_points import best_points
from oso_dp.study.cohort import Cohort

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
