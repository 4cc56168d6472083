"""The grids of plans: how large each is, but not where nothing is searched."""

from dataclasses import replace

import pytest
from pandas.testing import assert_frame_equal
from tests.planned_rows import mnist_study
from tests.stores import grid_table

from oso_dp.analysis.result_set import grid_sizes, list_grids
from oso_dp.study.plan import Plan, make_plan, read_plan, write_plan


def planned(*methods: str, **more) -> Plan:
    return make_plan(mnist_study(*methods or ("online",), **more))


@pytest.mark.parametrize("search_accounting", ["single", "linear_scaling"])
def test_list_grids_unsearched_plans_ignored(search_accounting) -> None:
    """Plans of single runs and of linear scaling add no grid."""
    searched, alone = planned(), planned(search_accounting=search_accounting)
    assert list_grids([searched])["runs"].tolist() == [9]
    assert list_grids([alone]).empty
    for order in ((alone, searched), (searched, alone)):
        grids = list_grids(order)
        assert grids["runs"].tolist() == [9]
        assert grid_sizes(grids) == {("mnist", "online", 9): 9}


@pytest.mark.parametrize("others", [["stopped"], ["stopped", "searched"], ["searched", "stopped"]])
def test_list_grids_random_stopping_noise_ignored(others) -> None:
    """A plan of random stopping gives the size of a grid, but not its noise multiplier."""
    plans = {"stopped": planned(search_accounting="random_stopping"), "searched": planned()}
    grids = list_grids([plans[name] for name in others])
    assert grids["runs"].tolist() == [9]
    noise = grids[["noise_multiplier", "query_noise_multiplier"]].dropna().to_numpy().tolist()
    nu = pytest.approx(1.4935, abs=1e-3)
    query = pytest.approx(7.124 * 1.4935, abs=1e-2)
    assert noise == ([[nu, query]] if "searched" in others else [])


def test_list_grids_states_planned_values(tmp_path) -> None:
    """Also of a plan that was stored; NoDP has no noise."""
    write_plan(planned("online", "no_dp"), tmp_path / "plan.json")
    private, plain = list_grids([read_plan(tmp_path / "plan.json")]).to_dict("records")
    assert (private["method"], private["k"], private["epsilon"]) == ("online", 9, 3.0)
    assert (private["delta"], private["steps"]) == (1e-5, 1172)
    assert private["sampling_rate"] == pytest.approx(512 / 60_000)
    assert (plain["method"], plain["runs"]) == ("no_dp", 9)
    assert plain["noise_multiplier"] != plain["noise_multiplier"]
    assert plain["epsilon"] != plain["epsilon"]


@pytest.mark.parametrize("turned", [False, True])
def test_list_grids_first_plan_wins(turned) -> None:
    """The first plan gives a grid's runs and noise; the second adds what the first lacks."""
    one, other = planned(), planned(values_per_axis=[9, 7])
    cohorts = [replace(cohort, grid_runs=11, noise_multiplier=1.7) for cohort in other.cohorts]
    plans = [one, replace(other, cohorts=tuple(cohorts))]
    grids = list_grids(plans[:: -1 if turned else 1]).set_index("k")
    assert grids.loc[9, "runs"] == (11 if turned else 9)
    assert (grids.loc[9, "noise_multiplier"] == 1.7) == turned
    assert grids.loc[7, "runs"] == 11
    assert len(grids) == 2


def test_list_grids_without_plans_empty() -> None:
    assert_frame_equal(list_grids([]), grid_table())


@pytest.mark.parametrize("turned", [False, True])
def test_grid_sizes_takes_largest(turned) -> None:
    """The size of a grid is the largest over all budgets, in any order."""
    entry = {"dataset": "mnist", "method": "online", "k": 9, "noise_multiplier": 1.5}
    sizes = [(3.0, 9), (9.0, 12)]
    entries = [entry | {"epsilon": e, "runs": n} for e, n in sizes[:: -1 if turned else 1]]
    assert grid_sizes(grid_table(entries)) == {("mnist", "online", 9): 12}


@pytest.mark.parametrize(
    ("k", "method", "size"),
    [
        (9, "online", 12),
        (9, "fixed_threshold", 81),
        (7, "online", 7),
        (9, "a_method_of_ours", None),
    ],
)
def test_grid_size_plan_overrides_design(k, method, size, store, study) -> None:
    """The plan's size replaces the default for its own method and k only."""
    grid = {"dataset": "mnist", "method": "online", "k": 9, "noise_multiplier": 1.5}
    store.add()
    made = study(store, [grid | {"epsilon": 3.0, "runs": 12}])
    assert made.grid_size("mnist", method, k) == size
