"""The candidates of a grid search: k values per log-uniform axis (Galli et al., "Experiments")."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from oso_dp.methods import find_method

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
