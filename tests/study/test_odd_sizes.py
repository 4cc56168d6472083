"""Where a last batch is not whole, a step more is taken: every way to search pays for that one."""

import math
from typing import Any

import pytest

from oso_dp.accounting.tuning_cost import Search
from oso_dp.study.calibration import calibrate_grids, check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise

STUDY: dict[str, Any] = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}},
    "values_per_axis": [7],
    "seeds": [0],
}
EXAMPLES = 6000
# Of 0.0005 steps more than a whole number, of a half, of nearly one, and of none.
SIZES = [(5999, 3), (4000, 1), (4500, 2), (1001, 1), (600, 2)]
WAYS = ("composition", "single", "random_stopping", "linear_scaling")


@pytest.mark.parametrize(("batch_size", "epochs"), SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_the_last_step_is_paid_for_however_few_it_was_for(
    way, batch_size, epochs, monkeypatch
) -> None:
    asked: list[tuple[int, float]] = []

    def noise(search: Search, *_) -> float:
        asked.append((search.steps, search.sampling.rate))
        return 5.0

    def cost(search: Search, *_) -> float:
        asked.append((search.steps, search.sampling.rate))
        return 0.1

    monkeypatch.setattr(Search, "noise_multiplier", noise)
    monkeypatch.setattr(Search, "epsilon", cost)
    # No other test asks about this delta: what a search costs is kept, and trials are searches.
    delta = 1.2346e-5 + 1e-9 * WAYS.index(way)
    more = {"search_accounting": way, "batch_size": batch_size, "epochs": epochs, "delta": delta}
    config = parse_config({**STUDY, **more}, "x")
    expected = math.ceil(epochs * EXAMPLES / batch_size), batch_size / EXAMPLES
    grids = calibrate_grids(config)
    assert set(asked) == {expected}
    asked.clear()
    noises = {grid.cohort.name: grid.noise_multiplier for grid in grids}
    check_budget(make_plan_with_noise(config, noises).cohorts)
    assert set(asked) == {expected}
