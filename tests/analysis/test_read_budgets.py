"""Budget files: a plan says how large each grid is, but not where nothing is searched."""

import json

import pytest

from oso_dp.analysis.result_set import grid_sizes, read_budgets
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, write_plan

STUDY = {
    "name": "test",
    "datasets": {"mnist": {"model": "cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}},
    "values_per_axis": [9],
    "seeds": [0],
    "grid": {"quantiles": [0.5]},
}


def planned(path, **more):
    write_plan(make_plan(parse_config({**STUDY, **more}, "x")), path)
    return path


@pytest.mark.parametrize("search_accounting", ["single", "linear_scaling"])
def test_read_budgets_plans_without_grids_ignored(tmp_path, search_accounting) -> None:
    """Plans of single runs and of linear scaling add no budget."""
    searched = planned(tmp_path / "searched.json")
    alone = planned(tmp_path / "alone.json", search_accounting=search_accounting)
    assert read_budgets(searched)["runs"].tolist() == [9]
    assert read_budgets(alone).empty
    for order in ((alone, searched), (searched, alone)):
        budget = read_budgets(*order)
        assert budget["runs"].tolist() == [9]
        assert grid_sizes(budget) == {("mnist", "online", 9): 9}


@pytest.mark.parametrize("others", [["stopped"], ["stopped", "searched"], ["searched", "stopped"]])
def test_read_budgets_random_stopping_noise_ignored(tmp_path, others) -> None:
    """A plan of random stopping gives the size of a grid, but not its noise multiplier."""
    paths = {
        "stopped": planned(tmp_path / "stopped.json", search_accounting="random_stopping"),
        "searched": planned(tmp_path / "searched.json"),
    }
    budget = read_budgets(*(paths[name] for name in others))
    assert budget["runs"].tolist() == [9]
    noise = budget["noise_multiplier"].dropna().tolist()
    assert noise == ([pytest.approx(1.4935, abs=1e-3)] if "searched" in others else [])


@pytest.mark.parametrize("turned", [False, True])
def test_read_budgets_first_file_wins(tmp_path, turned) -> None:
    """The first file gives a grid's runs and noise; the second adds what the first lacks."""
    entry = {"dataset": "mnist", "method": "online", "k": 9, "epsilon": 3.0}
    one = [entry | {"runs": 9, "noise_multiplier": 1.5}]
    other = [entry | {"runs": 11, "noise_multiplier": 1.7, "k": k} for k in (9, 7)]
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, content in zip(paths, (one, other), strict=True):
        path.write_text(json.dumps(content))
    budget = read_budgets(*paths[:: -1 if turned else 1]).set_index("k")
    expected = [11, 1.7] if turned else [9, 1.5]
    assert budget.loc[9, ["runs", "noise_multiplier"]].tolist() == expected
    assert budget.loc[7, "runs"] == 11
    assert len(budget) == 2


@pytest.mark.parametrize("turned", [False, True])
def test_grid_sizes_takes_largest(tmp_path, turned) -> None:
    """The size of a grid is the largest over all budgets, in any order."""
    entry = {"dataset": "mnist", "method": "online", "k": 9, "noise_multiplier": 1.5}
    path = tmp_path / "budget.json"
    sizes = [(3.0, 9), (9.0, 12)]
    entries = [entry | {"epsilon": e, "runs": n} for e, n in sizes[:: -1 if turned else 1]]
    path.write_text(json.dumps(entries))
    assert grid_sizes(read_budgets(path)) == {("mnist", "online", 9): 12}


@pytest.mark.parametrize(
    ("k", "method", "size"),
    [
        (9, "online", 12),
        (9, "fixed_threshold", 81),
        (7, "online", 7),
        (9, "a_method_of_ours", None),
    ],
)
def test_grid_size_budget_overrides_design(k, method, size, tmp_path, store, study) -> None:
    """The budget's size replaces the default for its own method and k only."""
    path = tmp_path / "budget.json"
    entry = {"dataset": "mnist", "method": "online", "k": 9, "noise_multiplier": 1.5}
    path.write_text(json.dumps([entry | {"epsilon": 3.0, "runs": 12}]))
    store.add()
    assert study(store, path).grid_size("mnist", method, k) == size
