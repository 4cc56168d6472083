"""The points of a hyperparameter grid, each with the options of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from oso_dp.api.arguments import check_named
from oso_dp.api.options import TrainingOptions, check_effects, takes_momentum
from oso_dp.errors import OsoError
from oso_dp.methods import find_method
from oso_dp.value_checks import as_plain

# A torch optimizer's learning rates are multiplied by the method's, which starts at 1.
RATE_FACTOR = "learning_rate_factor"


@dataclass(frozen=True)
class GridPoint:
    point: dict[str, float]
    options: TrainingOptions

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.point.items()) or "one point"


def make_grid(grid: Mapping[str, Sequence[float]], common: Mapping[str, Any]) -> list[GridPoint]:
    """All combinations of the grid's values, in its order, each with the arguments in `common`.

    Raises OsoError for an invalid grid, and for values that TrainingOptions does not allow.
    """
    option_names = {field.name for field in fields(TrainingOptions)} - {"method_options"}
    common_options = {name: value for name, value in common.items() if name in option_names}
    constants = {name: value for name, value in common.items() if name not in option_names}
    check_named("method", common_options.get("method", TrainingOptions.method))
    method = find_method(common_options.get("method", TrainingOptions.method))
    names = ("optimizer", "learning_rate", "momentum")
    check_effects(method.name, *(common_options.get(name) for name in names))
    # Values that the method sets by itself are excluded: their points would be identical.
    has_optimizer = common_options.get("optimizer") is not None
    renamed = {"learning_rate": RATE_FACTOR} if has_optimizer else {}
    run_axes = {renamed.get(name, name): name for name in method.search}
    if takes_momentum(method.name) and not has_optimizer:
        run_axes["momentum"] = "momentum"
    searched = list(dict.fromkeys([*run_axes, *(field.name for field in fields(method.Options))]))
    if not isinstance(grid, Mapping) or not grid:
        raise OsoError("grid: must map names to lists of values, as {'learning_rate': [0.1, 1]}")
    grid = {name: _as_list(values) for name, values in grid.items()}
    for name, values in grid.items():
        if name not in searched:
            raise OsoError(
                f"grid: {name!r} cannot be searched; must be one of {', '.join(searched)}"
            )
        if name in common:
            raise OsoError(f"grid: {name} is also given as an argument; remove one of the two")
        if not isinstance(values, list | tuple) or not values:
            raise OsoError(f"grid: {name}: {values!r}; must be a list of values")
        numbers = [as_plain(value) for value in values]
        if any(value is None for value in numbers):
            raise OsoError(f"grid: {name} contains None; each value must be a number")
        distinct = {value if isinstance(value, int | float) else repr(value) for value in numbers}
        if len(distinct) < len(numbers):  # 1 and 1.0 would be one training, paid for twice
            raise OsoError(f"grid: {name}: a value appears twice; each must appear once")
    points = []
    for combination in product(*grid.values()):
        point = dict(zip(grid, combination, strict=True))
        start: dict[str, Any] = {
            run_axes[name]: value for name, value in point.items() if name in run_axes
        }
        rest = {name: value for name, value in point.items() if name not in run_axes}
        options = TrainingOptions(**common_options, **start, method_options={**constants, **rest})
        points.append(GridPoint(point, options))
    return points


def _as_list(values: Any) -> Any:
    """A one-dimensional array or tensor as a list; any other value unchanged."""
    return values.tolist() if getattr(values, "ndim", None) == 1 else values
