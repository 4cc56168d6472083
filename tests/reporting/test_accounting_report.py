"""The ledgers' section: verdicts from the ledgers, not from what the rows claim."""

from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pytest

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.analysis.accounts import GridAccount, account_grids
from oso_dp.analysis.load import read_result_set
from oso_dp.cli.report import report
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.reporting.page import build
from oso_dp.reporting.page.build import build_report
from oso_dp.reporting.tables.accounting import accounting_table, statement
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise, read_plan, write_plan


def accounts_of(store):
    return account_grids(store.frames()[0])


def ledger(nu, steps=600):
    return Ledger(PoissonSampling(1.0), [((SumQuery("clipped_gradient", nu),), steps)])


def test_statement_names_exceeded_grids(store):
    store.add(epsilon=3.0)
    honest = accounts_of(store)
    assert statement(honest).startswith("The only grid was recomputed")
    assert "It is within its budget." in statement(honest)
    store.add(method="fixed_threshold", noise_multiplier=10.0)
    accounts = accounts_of(store)
    table = accounting_table(accounts)
    assert table.printed["verdict"].tolist() == ["within", "exceeded"]
    assert table.printed["method"].tolist() == ["Online", "FixedThreshold"]
    text = statement(accounts)
    assert "All 2 grids were recomputed" in text
    assert "1 of them exceed theirs: mnist.fixed_threshold.k9.eps9." in text
    assert "None exceeds" not in text


def test_accounting_table_matches_hand_computation(store):
    """Missing runs are charged as stored ones, for one seed."""
    claim = {"noise_multiplier": 200.0, "query_noise_multiplier": None}
    store.add(learning_rate=0.1, **claim, ledger=ledger(200.0).to_json())
    store.add(learning_rate=1.0, **claim, ledger=ledger(200.0).to_json())
    store.add(learning_rate=1.0, **claim, seed=1, ledger=ledger(200.0).to_json())
    (row,) = accounting_table(accounts_of(store)).data.to_dict("records")
    assert row["rdp"] == pytest.approx(compute_epsilon([ledger(200.0, steps=9 * 600)], 1e-5))
    assert (row["runs"], row["stored"], row["seeds"]) == (9, 2, 2)
    assert row["pld"] == pytest.approx(row["prv"], abs=0.02)
    assert row["pld"] < row["rdp"]


def test_accounting_table_three_accountants_per_dataset(store):
    store.add(dataset="glyphs", noise_multiplier=500.0)
    store.add(noise_multiplier=400.0)
    store.add(method="adam_wosm", noise_multiplier=300.0)
    data = accounting_table(accounts_of(store)).data
    checked = data[data["pld"].notna() & data["prv"].notna()]
    assert checked["grid"].tolist() == ["mnist.adam_wosm.k9.eps9", "glyphs.online.k9.eps9"]
    assert data["prv"].notna().sum() == 2
    assert [name.split(".")[0] for name in data["grid"]] == data["dataset"].tolist()


def test_statement_no_private_runs_reported(store):
    store.add(method="no_dp")
    assert "No run here is private" in statement(accounts_of(store))
    assert accounting_table(accounts_of(store)).printed.empty


def test_statement_many_grids_abbreviated(store):
    for k in range(2, 10):
        store.add(k=k, noise_multiplier=5.0)
    text = statement(accounts_of(store))
    assert "8 of them exceed theirs" in text
    assert text.count("mnist.online") == 5


@pytest.mark.parametrize("spoilt", ["{}", ledger(300.0, steps=599).to_json()])
def test_build_report_broken_ledger_raises(tmp_path, store, spoilt):
    store.add(learning_rate=0.1)
    run_id = store.add(ledger=spoilt)
    with pytest.raises(OsoError, match=f"run {run_id}: .*ledger") as error:
        build_report(store.write(tmp_path / "results"), tmp_path / "report")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "report").exists()


def test_build_report_exceeded_budget_raises(tmp_path, store):
    store.add(learning_rate=0.1)
    store.add(epsilon=3.0, noise_multiplier=5.0)  # much less than such a grid needs
    with pytest.raises(OsoError, match=r"mnist\.online\.k9\.eps3: its ledgers cost epsilon"):
        build_report(store.write(tmp_path / "results"), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_build_report_uses_all_plans(tmp_path, store, monkeypatch):
    """`build_report` passes all plans to the accounts and to the budget."""
    store.add()
    results, paths = store.write(tmp_path / "results"), []
    for k in (2, 3):
        config = {
            "name": f"study{k}",
            "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [9], "seconds_per_step": 1}},
            **{"methods": {"online": {}}, "values_per_axis": [k], "seeds": [0]},
        }
        paths.append(tmp_path / f"{k}.json")
        write_plan(
            make_plan_with_noise(parse_config(config, "test"), defaultdict(lambda: 50.0)), paths[-1]
        )
    seen = []

    def enough(results, runs, *plans):
        seen.extend(plan.name for plan in plans)
        raise OsoError("enough")

    monkeypatch.setattr(build, "account_store", enough)
    with pytest.raises(OsoError, match="enough"):
        build_report(results, tmp_path / "report", paths)
    assert seen == ["study2", "study3"]
    plans = [read_plan(path) for path in paths]
    assert read_result_set(results, plans).budget["k"].tolist() == [2, 3]


def test_build_report_page_states_accounts(paper_report):
    page = (paper_report / "index.html").read_text(encoding="utf-8")
    assert "All 4 grids were recomputed from the stored ledgers, by RDP. None exceeds" in page
    table = pd.read_csv(paper_report / "tables" / "accounting.csv")
    assert (table["rdp"] <= table["budget"]).all()
    assert table["runs"].tolist() == [9, 81, 45, 9]


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        (7.5, "7.5000 of 8 by RDP, within its budget"),
        (7.12341, "7.1235 of 8 by RDP, within its budget"),
        (8.00001, "8.0001 of 8 by RDP, ABOVE its budget"),
        (8.25, "8.2500 of 8 by RDP, ABOVE its budget"),
    ],
)
def test_statement_total_states_spent_epsilon(spent, said):
    """The total states the spent epsilon, rounded up, and whether it is within the budget."""
    known = {"dataset": "patients", "method": "all", "k": 0, "epsilon": 8.0, "delta": 1e-5}
    total = GridAccount(**known, runs=12, stored=4, seeds=2, spent=spent, ledgers=(), total=True)
    text = statement([total])
    assert text.startswith("All 12 runs on patients together")
    assert f"cost ε = {said}" in text
    assert "recomputed" not in text  # seeds are charged, and there is no grid
    grid = replace(total, total=False, method="online", k=9)
    assert "The only grid was recomputed" in statement([total, grid])
    (row,) = accounting_table([total]).printed.to_dict("records")
    assert row["ε spent, RDP"] == said.split()[0]


def test_report_command_passes_all_plans(tmp_path, monkeypatch):
    """The command passes every given plan to `build_report`."""
    seen = []
    monkeypatch.setattr(build, "build_report", lambda *given: seen.append(given) or "done")
    named = [tmp_path / "a.json", tmp_path / "b.json"]
    report(tmp_path, output=tmp_path / "out", plan=named)
    assert seen == [(tmp_path, tmp_path / "out", named)]
