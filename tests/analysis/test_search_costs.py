"""The price of a search: known values, the right grids, the right setting."""

import math
from collections import defaultdict
from importlib.metadata import version
from itertools import permutations

import pytest
from tests.planned_rows import mnist_study
from tests.searches import make_search
from tests.stores import grid_table

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.analysis import search_costs as module
from oso_dp.analysis.result_set import ResultSet, list_grids
from oso_dp.analysis.search_costs import (
    RULES,
    cost_setting,
    grids,
    grids_at_largest_k,
    read_costs,
    search_costs,
    write_costs,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.tables.search_cost import search_cost_table
from oso_dp.study.plan import make_plan_with_noise, read_plan, write_plan

MNIST = {"epsilon": 3.0, "batch_size": 512, "steps": 1172}  # of 60000 examples


def test_search_costs_matches_known_values(store, study, monkeypatch):
    """The noise multipliers match dp_accounting for MNIST, epsilon = 3 and a grid of 81."""
    store.add(method="fixed_threshold", k=9, noise_multiplier=4.0, **MNIST)
    price, asked = module._noise_multiplier, []

    def but_for_one(*asks):
        """A single run's noise by PLD alone takes as long as all the others together."""
        if asks[0].runs > 1 or asks[-1] != "pld":
            return price(*asks)
        asked.append(asks)
        return 0.787

    monkeypatch.setattr(module, "_noise_multiplier", but_for_one)
    prices = search_costs(study(store))
    assert asked == [(Search(PoissonSampling(512 / 60_000), 1172, 1), 3.0, 1e-5, "pld")]
    assert prices["runs"].tolist() == [1, 1] + [81] * 5
    assert prices["noise_multiplier"].iloc[0] == pytest.approx(0.837, abs=1e-3)
    of_81 = prices[prices["runs"] == 81]
    stopping = of_81.set_index("distribution")["noise_multiplier"]
    assert stopping["poisson"] == pytest.approx(2.761, abs=1e-3)
    assert stopping["geometric"] == pytest.approx(1.306, abs=1e-3)
    assert stopping["logarithmic"] == pytest.approx(1.147, abs=1e-3)
    composed = of_81[of_81["search_accounting"] == "composition"].set_index("accountant")
    assert composed.loc["rdp", "noise_multiplier"] == pytest.approx(3.994, abs=1e-3)
    assert composed.loc["pld", "noise_multiplier"] == pytest.approx(3.73, abs=0.02)


def test_search_cost_table_covers_all_rules(store, study, monkeypatch):
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: 5.0)
    for k in (5, 9):
        for method in ("online", "fixed_threshold"):
            store.add(method=method, k=k)
    store.add(method="fixed_quantile", k=5, quantile=0.5)
    table = search_cost_table(study(store))
    paper = table.printed.set_index("N")["all N, RDP"]
    assert paper.index.tolist() == ["1", "5", "9", "25", "81"]
    assert (paper != "–").all()
    others = table.printed.set_index("N")[[rule.heading for rule in RULES[1:]]]
    assert (others.drop("1") != "–").all(axis=None)
    assert others.loc["1"].tolist() == [others.loc["1", "all N, PLD"], "–", "–", "–"]
    grids = table.printed.set_index("N")["grid"]
    assert grids["25"] == "FixedThreshold, FixedQuantile (k = 5)"
    assert grids["9"] == "Online (k = 9)"
    assert grids["1"] == "a single run"


def test_search_costs_increases_with_runs(paper_store, study):
    prices = search_costs(study(paper_store))
    names = ["search_accounting", "accountant", "distribution"]
    for _, line in prices.groupby(names, dropna=False):
        assert line["noise_multiplier"].is_monotonic_increasing
    paper, *tighter = (
        prices[prices["runs"] == 81].set_index(names)["noise_multiplier"].sort_values()[::-1]
    )
    assert paper == prices["noise_multiplier"].max()
    assert len(tighter) == 4


def test_grids_at_largest_k_excludes_smaller(paper_store, study):
    paper_store.add(k=5, method="fixed_threshold")
    assert grids_at_largest_k(study(paper_store), "mnist") == {
        9: ["online", "adam_wosm"],
        45: ["fixed_quantile"],
        81: ["fixed_threshold"],
    }


@pytest.mark.parametrize(
    ("epsilons", "chosen"),
    [((1, 3, 9), 3), ((1, 5, 9), 5), ((1, 2), 2), ((9,), 9), ((2.5, 4), 4), ((2.99, 9), 9)],
)
def test_cost_setting_selects_one_epsilon(store, study, epsilons, chosen):
    for epsilon in epsilons:
        store.add(epsilon=float(epsilon))
    assert cost_setting(study(store), "mnist").epsilon == chosen


def test_cost_setting_plan_overrides_rows(store, study):
    store.add(batch_size=15_000, delta=1e-6)  # the first, and not the usual one
    store.add(batch_size=30_000, learning_rate=0.1)
    store.add(batch_size=30_000, learning_rate=1.0)
    for seed in range(3):
        store.add(method="no_dp", seed=seed, batch_size=6000)
    at = cost_setting(study(store), "mnist")
    assert (at.sampling.rate, at.steps, at.delta) == (0.5, 600, 1e-5)
    entry = {"dataset": "mnist", "k": 9, "runs": 9, "method": "online", "noise_multiplier": 1.0}
    entry |= {"epsilon": 4.0, "delta": 1e-7, "steps": 20}
    for rate, expected in ((None, (0.5, 600, 1e-5)), (0.25, (0.25, 20, 1e-7))):
        at = cost_setting(study(store, [entry | {"sampling_rate": rate}]), "mnist")
        assert (at.sampling.rate, at.steps, at.delta) == expected
        assert at.epsilon == 4


@pytest.mark.parametrize("epsilons", [*permutations((9.0, 3.0, 5.0)), (9.0, 3.0), (2.0, 1.0)])
def test_cost_setting_ignores_plan_order(epsilons, store, study) -> None:
    entry = {"dataset": "mnist", "k": 9, "runs": 9, "method": "online", "noise_multiplier": 1.0}
    entry |= {"delta": 1e-5, "steps": 20, "sampling_rate": 0.5}
    grids = [entry | {"epsilon": epsilon} for epsilon in epsilons]
    assert cost_setting(study(store, grids), "mnist").epsilon == (3 if 3.0 in epsilons else 2)


def test_cost_setting_without_private_runs_none(store, study):
    store.add(method="no_dp")
    assert cost_setting(study(store), "mnist") is None
    assert search_cost_table(study(store)).printed.empty


def test_search_cost_table_unreachable_budget_blank(store, study):
    store.add(epsilon=1e-6, noise_multiplier=1e8)
    table = search_cost_table(study(store))
    assert table.printed.set_index("N").loc["9", "all N, RDP"] == "–"
    assert any("no noise meets" in note for note in table.notes)


def write_grids(path, steps=600):
    """Write a plan of two grids of one data set; q = 1, where noise is found at once."""
    study = mnist_study("online", "fixed_threshold", batch_size=60_000, epochs=steps)
    plan = make_plan_with_noise(study, defaultdict(lambda: 9.0))
    write_plan(plan, path)
    return path


@pytest.fixture
def planned(tmp_path):
    plan = write_grids(tmp_path / "plan.json")
    write_costs(plan, tmp_path / "search_noise.csv")
    return plan, tmp_path / "search_noise.csv"


def test_search_costs_known_not_recomputed(planned, store, monkeypatch):
    plan, path = planned
    store.add(epsilon=3.0)
    fresh = search_costs(ResultSet(*store.frames(), list_grids([read_plan(plan)])))
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: pytest.fail("computed again"))
    known = read_costs(path)
    again = search_costs(ResultSet(*store.frames(), list_grids([read_plan(plan)]), known))
    assert len(again) == 12
    assert again.equals(fresh)


@pytest.mark.parametrize("impossible", [["pld"], ["rdp"], ["rdp", "pld"]])
def test_search_costs_stored_nan_kept(impossible, planned, store, monkeypatch):
    """A search without a feasible noise multiplier stays NaN in the file, not 0."""
    plan, path = planned
    path.unlink()
    monkeypatch.setattr(
        module, "_noise_multiplier", lambda *of: math.nan if of[-1] in impossible else 5.0
    )
    write_costs(plan, path)
    store.add(epsilon=3.0)
    known = ResultSet(*store.frames(), list_grids([read_plan(plan)]), read_costs(path))
    prices = search_costs(known)
    assert (
        prices["noise_multiplier"].isna().tolist() == prices["accountant"].isin(impossible).tolist()
    )
    shown = search_cost_table(known).printed["all N, PLD"]
    assert set(shown) == ({"–"} if "pld" in impossible else {"5.000"})


def test_write_costs_other_plan_appended(planned, monkeypatch):
    plan, path = planned
    before = path.read_text()
    write_grids(plan, steps=700)
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: 5.0)
    write_costs(plan, path)
    assert path.read_text().startswith(before)
    assert len(read_costs(path)) == 2 * len(before.splitlines()[1:])
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: pytest.fail("computed again"))
    after = path.read_text()
    write_costs(plan, path)
    assert path.read_text() == after


def test_write_costs_concurrent_plans_both_kept(planned, monkeypatch):
    """`write_costs` keeps the costs that another call writes while the first one computes."""
    plan, path = planned
    other = write_grids(plan.with_name("other.json"), steps=800)
    write_grids(plan, steps=700)
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: 5.0)

    def slow(study):
        monkeypatch.setattr(module, "search_costs", search_costs)
        write_costs(other, path)
        return search_costs(study)

    monkeypatch.setattr(module, "search_costs", slow)
    write_costs(plan, path)
    assert {steps for _, steps, *_ in read_costs(path)} == {600, 700, 800}


@pytest.mark.parametrize(
    "change",
    [
        ("1.0,600,", "1.0,601,"),
        (",3.0,1e-05,", ",3.0,1e-06,"),
        (f",{version('dp-accounting')},", ",0.0.1,"),
    ],
    ids=["steps", "delta", "library"],
)
def test_search_costs_mismatched_known_ignored(planned, store, change, monkeypatch):
    plan, path = planned
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    monkeypatch.setattr(module, "_noise_multiplier", lambda *_: 123.0)
    store.add(epsilon=3.0)
    prices = search_costs(
        ResultSet(*store.frames(), list_grids([read_plan(plan)]), read_costs(path))
    )
    assert set(prices["noise_multiplier"]) == {123.0}


def test_read_costs_foreign_file_rejected(tmp_path):
    path = tmp_path / "search_noise.csv"
    assert read_costs(path) == {}
    for content in ("", "a,b\n1,2\n", "sampling_rate,steps\n0.1,many\n"):
        path.write_text(content)
        with pytest.raises(
            OsoError, match=r"search_noise\.csv: not a table of search costs"
        ) as error:
            read_costs(path)
        assert "\n" not in str(error.value)


def test_read_costs_results_match_search(repo):
    """The stored RDP costs of 1 and 9 runs match a new computation."""
    stored = read_costs(repo / "results" / "search_noise.csv")
    assert stored
    for (
        rate,
        steps,
        runs,
        epsilon,
        delta,
        search_accounting,
        accountant,
        distribution,
        _,
    ), nu in stored.items():
        rule = next(
            rule
            for rule in RULES
            if (rule.search_accounting, rule.accountant, rule.distribution)
            == (search_accounting, accountant, distribution)
        )
        if accountant == "rdp" and runs in (1, 9):
            search = rule.search(PoissonSampling(rate), steps, runs)
            assert search.epsilon(nu, delta) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_search_costs_uses_dataset_delta(store, study, delta):
    store.add(epsilon=3.0, delta=delta)
    prices = search_costs(study(store))
    assert set(prices["delta"]) == {delta}
    for row in prices[prices["accountant"] == "rdp"].to_dict("records"):
        found = make_search(
            PoissonSampling(1.0),
            600,
            row["runs"],
            row["search_accounting"],
            STOPPING_ETA.get(row["distribution"]),
        )
        assert found.epsilon(row["noise_multiplier"], delta) == pytest.approx(3.0, rel=1e-6)


def test_grids_separates_datasets(store, study):
    store.add(method="online", k=5)
    store.add(method="fixed_threshold", k=3, dataset="fashion_mnist", metric="mse")
    one = study(store)
    assert grids(one, "mnist") == {5: {5: ["online"]}}
    assert grids(one, "fashion_mnist") == {9: {3: ["fixed_threshold"]}}


@pytest.mark.parametrize("order", [1, -1])
def test_search_costs_protected_datasets_omitted(store, order):
    known = {"method": "online", "k": 2, "epsilon": 8.0, "runs": 2, "noise_multiplier": 9.0}
    known |= {"delta": 1e-5, "steps": 6, "sampling_rate": 1.0}
    entries = [known | {"dataset": name, "budget_runs": 12} for name in ("patients", "visits")]
    entries.append(known | {"dataset": "mnist"})
    prices = search_costs(ResultSet(*store.frames(), grid_table(entries[::order])))
    assert set(prices["dataset"]) == {"mnist"}


@pytest.mark.parametrize("order", [1, -1])
def test_cost_setting_uses_dataset_rows(store, study, order):
    """The setting comes from the rows of its own data set, in any order of data sets."""
    each = [("mnist", 9.0, 30_000, 4), ("fashion_mnist", 4.0, 15_000, 8)][::order]
    for dataset, epsilon, size, epochs in each:
        for seed in range(1 + 3 * (dataset == each[0][0])):
            more = {"batch_size": size, "epochs": epochs, "delta": 1e-5 / epochs, "seed": seed}
            more |= {"steps": epochs * 60_000 // size}
            store.add(dataset=dataset, epsilon=epsilon, **more)
    one = study(store)
    for dataset, epsilon, size, epochs in each:
        at = cost_setting(one, dataset)
        assert (at.sampling.rate, at.epsilon, at.delta) == (size / 60_000, epsilon, 1e-5 / epochs)
        assert at.steps == epochs * 60_000 // size
