"""Before training, every way to search is held against its own price, with each last step."""

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.searches import make_search, scaled_cost

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import calibrate_grids, check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise

STUDY = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}},
    "values_per_axis": [9],
    "seeds": [0],
    "batch_size": 6000,  # everybody in each batch: priced in no time
    "epochs": 5,
}
WAYS = {
    "composition": {},
    "single": {"search_accounting": "single"},
    **{
        shape: {"search_accounting": "random_stopping", "stopping_distribution": shape}
        for shape in ("logarithmic", "geometric", "poisson")
    },
}
SCALED = {"search_accounting": "linear_scaling"}


def planned(way: str, share: float):
    """The study's one cohort with so much of the noise that its search asks for."""
    config = parse_config({**STUDY, **WAYS[way]}, "x")
    (grid,) = calibrate_grids(config)
    return make_plan_with_noise(config, {grid.cohort.name: share * grid.noise_multiplier}).cohorts[
        0
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("short", [1e-5, 1e-3])
def test_check_budget_insufficient_noise_raises(way, short) -> None:
    check_budget([planned(way, 1.0)])
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget([planned(way, 1 - short)])


def test_check_budget_other_stopping_distribution_raises() -> None:
    """The noise for a logarithmic distribution is too little for a geometric or Poisson one."""
    cheap = planned("logarithmic", 1.0)
    for shape in ("geometric", "poisson"):
        with pytest.raises(OsoError, match="would cost epsilon"):
            check_budget([replace(cheap, stopping_distribution=shape)])


@pytest.mark.parametrize("shape", STOPPING_ETA)
def test_calibrate_grids_stopping_distribution_matches_search(shape) -> None:
    search = make_search(PoissonSampling(1.0), 5, 9, RANDOM_STOPPING, STOPPING_ETA[shape])
    expected = search.noise_multiplier(3.0, 1e-5)
    asked = [(STUDY, {"search_accounting": RANDOM_STOPPING, "stopping_distribution": shape})]
    asked.append(({**STUDY, **WAYS[shape]}, {}))
    for study, how in asked:
        (grid,) = calibrate_grids(parse_config(study, "x"), **how)
        assert grid.noise_multiplier == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_calibrate_grids_uses_study_delta(delta: float) -> None:
    config = parse_config({**STUDY, "delta": delta}, "x")
    (grid,) = calibrate_grids(config)
    spent = Search(PoissonSampling(1.0), 5, 9).epsilon(grid.noise_multiplier, delta)
    assert 3.0 * (1 - 1e-6) < spent <= 3.0
    scaled = calibrate_grids(parse_config({**STUDY, "delta": delta, **SCALED}, "x"))
    whole = [part.noise_multiplier for part in scaled]
    assert 3.0 * (1 - 1e-6) < scaled_cost(scaled[0].search, whole, delta) <= 3.0


@pytest.mark.parametrize("place", [0, 1, 3, 4, 404])
def test_check_budget_checks_every_cohort(place: int) -> None:
    free = parse_config({**STUDY, "methods": {"no_dp": {}}}, "x")
    (plain,) = make_plan_with_noise(free, {}).cohorts
    cohorts = [plain, planned("composition", 1.0), planned("single", 1.0), plain]
    cohorts += [planned("single", 1.0)] * 400
    check_budget(cohorts)
    cohorts.insert(place, planned("composition", 0.99))
    with pytest.raises(OsoError, match="would cost epsilon"):
        check_budget(cohorts)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_check_budget_checks_every_stage(delta, place) -> None:
    config = parse_config({**STUDY, "delta": delta, **SCALED}, "x")
    grids = calibrate_grids(config)
    cohorts = list(
        make_plan_with_noise(config, {g.cohort.name: g.noise_multiplier for g in grids}).cohorts
    )
    assert len(cohorts) == 3
    check_budget(cohorts)
    short = cohorts[place].noise_multiplier * 0.999
    with pytest.raises(OsoError, match=f"{cohorts[place].name}: .* would cost epsilon"):
        check_budget([replace(cohorts[place], noise_multiplier=short)])


ODD: dict[str, Any] = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}},
    "values_per_axis": [7],
    "seeds": [0],
}
EXAMPLES = 6000
# Of 0.0005 steps more than a whole number, of a half, of nearly one, and of none.
SIZES = [(5999, 3), (4000, 1), (4500, 2), (1001, 1), (600, 2)]
RULES = ("composition", "single", "random_stopping", "linear_scaling")


@pytest.mark.parametrize(("batch_size", "epochs"), SIZES)
@pytest.mark.parametrize("way", RULES)
def test_calibrate_grids_partial_step_rounded_up(way, batch_size, epochs, monkeypatch) -> None:
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
    delta = 1.2346e-5 + 1e-9 * RULES.index(way)
    more = {"search_accounting": way, "batch_size": batch_size, "epochs": epochs, "delta": delta}
    config = parse_config({**ODD, **more}, "x")
    expected = math.ceil(epochs * EXAMPLES / batch_size), batch_size / EXAMPLES
    grids = calibrate_grids(config)
    assert set(asked) == {expected}
    asked.clear()
    noises = {grid.cohort.name: grid.noise_multiplier for grid in grids}
    check_budget(make_plan_with_noise(config, noises).cohorts)
    assert set(asked) == {expected}
