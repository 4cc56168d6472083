"""The noise of grids: each beside Online's own at that k, budgets before rows, printed units."""

import json
import statistics

import pytest

from oso_dp.analysis.noise import against_noise, noise_multipliers, online_grids


def test_a_grids_noise_is_held_against_onlines_of_the_same_k_and_budget(store, study) -> None:
    noise = {(7, 3.0): 1.5, (9, 3.0): 2.0, (7, 9.0): 0.5, (9, 9.0): 0.8}
    for (k, epsilon), nu in noise.items():
        store.add(k=k, epsilon=epsilon, noise_multiplier=nu)
        theirs = {"method": "fixed_threshold", "noise_multiplier": 3.0}
        store.add(k=k, epsilon=epsilon, **theirs)
    data = noise_multipliers(study(store))
    found = data[data["method"] == "fixed_threshold"].set_index(["k", "epsilon"])
    assert found["ratio_to_online"].to_dict() == {
        cell: pytest.approx(3.0 / nu) for cell, nu in noise.items()
    }


def test_a_deviation_is_in_the_unit_of_its_mean(store, study) -> None:
    values = (0.8, 0.85, 0.92)
    for seed, value in enumerate(values):
        store.add(seed=seed, values=(value,))
    cells = against_noise(study(store), "mnist")
    (ours,) = cells[cells["source"] == "ours"].to_dict("records")
    assert ours["mean"] == pytest.approx(100 * statistics.mean(values))
    assert ours["std"] == pytest.approx(100 * statistics.stdev(values))


def test_a_budget_says_how_the_noise_is_split_whatever_a_row_says(store, study, tmp_path) -> None:
    store.add(k=9, epsilon=9.0, noise_multiplier=1.0, query_noise_multiplier=7.0)
    entry = {"dataset": "mnist", "k": 9, "runs": 9, "method": "online", "epsilon": 9}
    budget = tmp_path / "budget.json"
    budget.write_text(json.dumps([entry | {"noise_multiplier": 2.0, "query_noise_multiplier": 8}]))
    shown = online_grids(study(store, budget))[["noise_multiplier", "ratio"]]
    assert shown.to_numpy().tolist() == [[2.0, 4.0]]
