"""`oso account`: a store above its budget ends with one line that names the grid."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.analysis.conftest import grid
from tests.analysis.test_noise_tables import own_data
from tests.results.conftest import evaluation_row
from tests.stores import Store

from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.results.write import write_table
from oso_dp.study.plan import read_plan, write_plan


@pytest.fixture
def store(collected) -> Path:
    """The smallest study, trained and collected."""
    return collected / "store"


def test_account_trained_store_within_budget(store, oso) -> None:
    status, output, error = oso(
        "account", store, "--plan", "plan.json", "--output", "accounting.csv"
    )
    assert status == 0, error
    assert "glyphs.online.k2.eps3" in output
    (row,) = pd.read_csv("accounting.csv").to_dict("records")
    assert (row["runs"], row["stored"], row["verdict"]) == (2, 2, "within")
    assert row["rdp"] == pytest.approx(3, rel=1e-3)
    assert row["pld"] == pytest.approx(row["prv"], rel=0.02)


def test_account_several_plans_all_checked(store, oso) -> None:
    plan = read_plan(Path("plan.json"))
    points = [run.point for run in plan.cohorts[0].runs]
    others = tuple(cohort.with_runs(points, [7]) for cohort in plan.cohorts)
    write_plan(replace(plan, cohorts=others), Path("other.json"))
    names = ["--plan", "other.json", "--plan", "plan.json"]
    assert oso("account", store, *names)[0] == 0
    (path,) = (store / "runs.parquet").glob("*.parquet")
    write_table(path, "runs", pd.read_parquet(path).assign(seed=3))
    for order in (names, [*names[2:], *names[:2]]):
        status, _, error = oso("account", store, *order)
        assert status != 0
        assert "seed: 3; must be" in error


@pytest.mark.parametrize(("spent", "said"), [(2.99996, "3.0000"), (3.00001, "3.0001")])
def test_account_printed_epsilon_rounded_up(spent, said, store, oso, monkeypatch) -> None:
    for module in ("analysis.accounts", "accounting.search_accounting.base"):
        monkeypatch.setattr(f"oso_dp.{module}.compute_epsilon", lambda *_: spent)
    status, output, _ = oso("account", store, "--plan", "plan.json")
    assert (status == 0) == (spent < 3)
    assert output.count(f" {said} ") == (3 if spent < 3 else 1)  # rdp, pld, prv


def test_account_non_private_store_lists_nothing(oso, tmp_path) -> None:
    store = Store()
    store.add(method="no_dp")
    table = tmp_path / "accounts.csv"
    status, output, error = oso("account", store.write(tmp_path), "--output", table)
    assert (status, error) == (0, "")
    assert "0 private grids" in output
    assert len(pd.read_csv(table)) == 0


@pytest.mark.parametrize("odd", [1.2345678e-7, 9.87654321e-6, 0.00123456789])
def test_account_prints_delta_unrounded(odd, oso, tmp_path) -> None:
    rows = grid(delta=odd).to_dict("records")
    scores = [evaluation_row(row["run_id"], step=row["steps"]) for row in rows]
    write_table(tmp_path / "store/runs.parquet", "runs", rows)
    write_table(tmp_path / "store/evaluations.parquet", "evaluations", scores)
    _, output, error = oso("account", tmp_path / "store", "--output", tmp_path / "accounts.csv")
    assert f" {odd!r} " in output, error
    assert pd.read_csv(tmp_path / "accounts.csv")["delta"].tolist() == [odd]


@pytest.mark.parametrize("named", [True, False])
def test_collect_row_differing_from_plan_rejected(named, collected, oso) -> None:
    path, store = Path("part/runs.parquet"), Path("new")
    write_table(path, "runs", pd.read_parquet(path).assign(seed=3))
    plan = read_plan(Path("plan.json"))
    online = [cohort for cohort in plan.cohorts if cohort.method == "online"]
    write_plan(replace(plan, cohorts=tuple(online)), Path("online.json"))
    if named:
        points = [run.point for run in plan.cohorts[0].runs]
        plan = replace(plan, cohorts=tuple(one.with_runs(points, [7]) for one in plan.cohorts))
    store.mkdir()
    write_plan(plan, store / "plan.json")
    options = ["--plan", "online.json"] if named else []
    status, _, error = oso("collect", "part", "--store", store, *options)
    assert status != 0
    assert "seed: 3; must be" in error
    assert not (store / "runs.parquet").exists()


def spoil(store, change) -> None:
    (path,) = (store / "runs.parquet").glob("*.parquet")
    runs = pd.read_parquet(path)
    ledgers = [change(Ledger.from_json(text)) for text in runs["ledger"]]
    runs["ledger"] = [ledger.to_json() for ledger in ledgers]
    runs["noise_multiplier"] = [ledger.releases()[0][0] for ledger in ledgers]
    second = [[q.noise_multiplier for q in ledger.steps[0][0][1:]] for ledger in ledgers]
    runs["query_noise_multiplier"] = [(noise or [None])[0] for noise in second]
    write_table(path, "runs", runs)


def test_account_grid_above_budget_fails(store, oso) -> None:
    def less_noise(ledger: Ledger) -> Ledger:
        steps = [
            (tuple(SumQuery(q.name, 0.9 * q.noise_multiplier) for q in queries), count)
            for queries, count in ledger.steps
        ]
        return Ledger(ledger.sampling, steps)

    spoil(store, less_noise)
    status, output, error = oso("account", store, "--plan", "plan.json", "--output", "table.csv")
    assert status == 2
    assert "exceeded" in output
    assert "glyphs.online.k2.eps3: its ledgers cost epsilon" in error
    assert error.count("\n") == 1
    assert "exceeded" in (store.parent / "table.csv").read_text()  # to see which


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("command", ["account", "summary"])
def test_account_summary_grid_above_budget_named(command, at, tmp_path, oso) -> None:
    store = Store()
    for place in range(3):
        less = {"noise_multiplier": 5.0} if place == at else {}
        store.add(dataset="glyphs", k=2, epsilon=3.0 + place, **less)
    status, _, error = oso(command, store.write(tmp_path))
    assert status == 2
    assert f"glyphs.online.k2.eps{3 + at}: its ledgers cost epsilon" in error


def test_account_private_datasets_print_statements(tmp_path, oso) -> None:
    store = Store()
    own_data(store, 5, "visits")
    store.runs = [row for row in store.runs if row["dataset"] == "visits"]
    mine = {row["run_id"] for row in store.runs}
    store.evaluations = [row for row in store.evaluations if row["run_id"] in mine]
    own_data(store, 12)
    status, output, error = oso("account", store.write(tmp_path))
    assert status == 0, error
    for dataset, runs in (("patients", 12), ("visits", 5)):
        assert f"{dataset}, version 1: (" in output
        assert f"Composed: {runs} runs, of which" in output


@pytest.mark.parametrize("spoiled", [0.5, 0.9])
def test_collect_search_above_budget_rejected(spoiled, tmp_path, oso) -> None:
    parts = []
    for momentum in (0.5, 0.9):
        store = Store()
        less = {"noise_multiplier": 5.0} if momentum == spoiled else {}
        store.add(dataset="glyphs", k=2, epsilon=3.0, momentum=momentum, **less)
        parts.append(store.write(tmp_path / f"{momentum}"))
    status, _, error = oso("collect", *parts, "--store", tmp_path / "store")
    assert status == 2
    assert "glyphs.online.k2.eps3: its ledgers cost epsilon" in error
    assert not (tmp_path / "store/runs.parquet").exists()
