"""The noise of grids: of the right k and budget, in the printed unit, beside runs of one length."""

import statistics

import pytest

from oso_dp.analysis.noise_tables import metric_against_noise, noise_multipliers, online_grids
from oso_dp.analysis.search_costs import search_costs
from oso_dp.reporting.figures import every_figure
from oso_dp.reporting.page.summary_text import noise_cost_text


@pytest.mark.parametrize("lengths", [(1, 5), (5, 1), (20, 3, 8), (10, 20), (10, 1)])
def test_metric_against_noise_selects_one_length(lengths, store, study) -> None:
    """Values over the noise are those of ten epochs, or else of the longest runs."""
    for epochs in lengths:
        store.add(k=epochs, epochs=epochs, steps=epochs, values=(0.5,))
    cells = metric_against_noise(study(store), "mnist")
    expected = 10 if 10 in lengths else max(lengths)
    assert cells.loc[cells["source"] == "ours", "k"].tolist() == [expected]


def test_noise_multipliers_ratio_uses_own_cell(store, study) -> None:
    """The ratio is to Online's noise at the same data set, k and epsilon."""
    expected = {}
    for i, dataset in enumerate(("mnist", "ag_news")):
        for j, k in enumerate((5, 9)):
            for n, epsilon in enumerate((3.0, 9.0)):
                cell = {"dataset": dataset, "k": k, "epsilon": epsilon}
                nu, times = 50.0 + 10 * i + 3 * j + n, 2.0 + 0.5 * i + 0.2 * j + 0.1 * n
                store.add(**cell, noise_multiplier=nu)
                store.add(**cell, method="fixed_threshold", noise_multiplier=nu * times)
                expected[dataset, k, epsilon] = times
    rows = noise_multipliers(study(store)).set_index("method")
    assert (rows.loc["online", "ratio_to_online"] == 1).all()
    others = rows.loc["fixed_threshold"].set_index(["dataset", "k", "epsilon"])
    assert others["ratio_to_online"].to_dict() == pytest.approx(expected)


def test_metric_against_noise_std_in_percent(store, study) -> None:
    values = (0.8, 0.85, 0.92)
    for seed, value in enumerate(values):
        store.add(seed=seed, values=(value,))
    cells = metric_against_noise(study(store), "mnist")
    (ours,) = cells[cells["source"] == "ours"].to_dict("records")
    assert ours["mean"] == pytest.approx(100 * statistics.mean(values))
    assert ours["std"] == pytest.approx(100 * statistics.stdev(values))


def test_online_grids_plan_overrides_rows(store, study) -> None:
    store.add(k=9, epsilon=9.0, noise_multiplier=1.0, query_noise_multiplier=7.0)
    entry = {"dataset": "mnist", "k": 9, "runs": 9, "method": "online", "epsilon": 9}
    grid = entry | {"noise_multiplier": 2.0, "query_noise_multiplier": 8}
    shown = online_grids(study(store, [grid]))[["noise_multiplier", "ratio"]]
    assert shown.to_numpy().tolist() == [[2.0, 4.0]]


def own_data(store, runs: int, dataset: str = "patients") -> None:
    """Two methods' grids on private data, and a public data set beside them."""
    said = {"data_version": "1", "budget_runs": runs, "randomness": "system"}
    for method, size in (("online", 2), ("fixed_threshold", 4)):
        more = {"k": 2, "threshold": 1.0, "noise_multiplier": 300.0}
        said |= {"grid_runs": size}
        store.add(dataset=dataset, method=method, **said, **more)
        store.add(dataset="glyphs", method=method, **more)


@pytest.mark.parametrize("runs", [12, 40])
def test_noise_multipliers_protected_budget_shared(runs, store, study) -> None:
    """On protected data the grid size is the number of runs that share the budget."""
    own_data(store, runs)
    made = study(store)
    noise = noise_multipliers(made).set_index(["dataset", "method"])["grid_size"]
    assert noise.to_dict() == {
        ("patients", "online"): runs,
        ("patients", "fixed_threshold"): runs,
        ("glyphs", "online"): 2,
        ("glyphs", "fixed_threshold"): 4,
    }
    assert made.budgeted_runs("patients") == "whole study"
    assert made.budgeted_runs("glyphs") == "whole grid"
    assert set(search_costs(made)["dataset"]) == {"glyphs"}
    drawn = {plan.name for plan in every_figure(made)}
    for kind in ("noise_multipliers", "metric_over_noise", "search_cost"):
        assert {f"{kind}_{name}" for name in ("patients", "glyphs")} & drawn == {f"{kind}_glyphs"}
    captions = {plan.name: plan.caption for plan in every_figure(made)}
    assert "budget of the whole study" in captions["metric_over_epsilon_patients_k2"]
    assert "budget of the whole grid" in captions["metric_over_epsilon_glyphs_k2"]


def test_noise_cost_text_omits_protected_data(store, study) -> None:
    """The text omits private data, whose ratio compares studies, not grids."""
    own_data(store, 12)
    for run in store.runs:
        if run["method"] == "fixed_threshold":
            run["noise_multiplier"] *= 5.0 if run["dataset"] == "patients" else 2.0
    (line,) = noise_cost_text(study(store))
    assert line.startswith("Cost of a larger grid (Glyphs, k = 2, ε = 9): FixedThreshold's grid")
    assert "of 4 runs needs 2.00 times the noise of Online's grid of 2" in line


@pytest.mark.parametrize(
    ("kept", "shared"),
    [({"patients", "glyphs"}, False), ({"patients"}, True), ({"glyphs"}, False)],
)
def test_has_only_shared_budgets_requires_protected(kept, shared, store, study):
    """`has_only_shared_budgets` is false as soon as one data set is public."""
    own_data(store, 12)
    store.runs[:] = [run for run in store.runs if run["dataset"] in kept]
    there = {run["run_id"] for run in store.runs}
    store.evaluations[:] = [row for row in store.evaluations if row["run_id"] in there]
    assert study(store).has_only_shared_budgets == shared
