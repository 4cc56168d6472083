"""The points of a grid, each with all that a training at it was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from oso_dp.api.arguments import as_plain, check_named
from oso_dp.api.options import TrainingOptions
from oso_dp.errors import OsoError
from oso_dp.methods import find_method


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid."""

    point: dict[str, float]
    options: TrainingOptions

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.point.items()) or "one point"


def make_grid(grid: Mapping[str, Sequence[float]], given: Mapping[str, Any]) -> list[GridPoint]:
    """All combinations of the grid's values, in its order, each beside what is `given` for all.

    OsoError for a grid that is none, and for what `Choices` refuses.
    """
    own_names = {one.name for one in fields(TrainingOptions)} - {"method_options"}
    common_options = {name: value for name, value in given.items() if name in own_names}
    constants = {name: value for name, value in given.items() if name not in own_names}
    check_named("method", common_options.get("method", TrainingOptions.method))
    kind = find_method(common_options.get("method", TrainingOptions.method))
    # What a method sets by itself would make points that are one and the same.
    of_runs = [*kind.search, *(["momentum"] if kind(kind.Options(), 0.0).uses_momentum else [])]
    searched = list(dict.fromkeys([*of_runs, *(one.name for one in fields(kind.Options))]))
    if not isinstance(grid, Mapping) or not grid:
        raise OsoError("grid: must hold lists of values by name, as {'learning_rate': [0.1, 1]}")
    grid = {name: _as_list(values) for name, values in grid.items()}
    for name, values in grid.items():
        if name not in searched:
            raise OsoError(f"grid: {name!r} cannot be searched; allowed are {', '.join(searched)}")
        if name in given:
            raise OsoError(f"grid: {name} is given beside it, too")
        if not isinstance(values, list | tuple) or not values:
            raise OsoError(f"grid: {name} must be a list of values")
        numbers = [as_plain(value) for value in values]
        if any(value is None for value in numbers):
            raise OsoError(f"grid: {name} has None among its values; each must be a number")
        known = {value if isinstance(value, int | float) else repr(value) for value in numbers}
        if len(known) < len(numbers):  # 1 and 1.0 are the same training, paid for twice
            raise OsoError(f"grid: {name} has a value twice")
    made = []
    for combination in product(*grid.values()):
        point = dict(zip(grid, combination, strict=True))
        starts: dict[str, Any] = {name: value for name, value in point.items() if name in of_runs}
        rest = {name: value for name, value in point.items() if name not in starts}
        made.append(
            GridPoint(
                point,
                TrainingOptions(**common_options, **starts, method_options={**constants, **rest}),
            )
        )
    return made


def _as_list(values: Any) -> Any:
    """An array's or a tensor's values in one row, as of numpy.logspace; else what is given."""
    return values.tolist() if getattr(values, "ndim", None) == 1 else values
