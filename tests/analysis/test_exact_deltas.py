"""A delta of many digits is stored and said as it is: a rounded one may be a smaller one."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from tests.analysis.conftest import grid
from tests.analysis.test_statements import by_hand, table
from tests.results.conftest import evaluation_row, run_row

from oso_dp.analysis.accounts import account_grids, accounts_table, check_budgets
from oso_dp.analysis.study_statement import make_planned_statements, make_stored_statements
from oso_dp.errors import OsoError
from oso_dp.labels import format_delta
from oso_dp.reporting.page.build import provenance
from oso_dp.results.collect import collect
from oso_dp.results.read import read_results
from oso_dp.results.write import write_table
from oso_dp.training.evaluate import Outcome
from oso_dp.training.job import make_row


@pytest.fixture(params=[1.2345678e-7, 9.87654321e-6, 0.00123456789])
def odd(request) -> float:
    return request.param


def test_study_statement_keeps_exact_delta(offer, odd) -> None:
    offer()
    plan = by_hand(delta=odd)
    runs = table(plan)
    for (said,) in (
        make_planned_statements(plan.cohorts),
        make_stored_statements(runs, account_grids(runs)),
    ):
        assert said.delta == odd
        assert f", {odd!r})-differential privacy" in str(said)


def test_make_row_keeps_exact_delta(offer, odd) -> None:
    offer()
    cohort = by_hand(delta=odd).cohorts[0]
    outcome = Outcome(cohort.runs[0].run_id, "finished", ledger="{}")
    task = SimpleNamespace(device=torch.device("cpu"))
    assert make_row(task, cohort, cohort.runs[0], outcome, "0")["delta"] == odd


def test_collect_keeps_exact_delta(odd, tmp_path) -> None:
    write_table(tmp_path / "part/runs.parquet", "runs", [run_row("one", delta=odd)])
    write_table(tmp_path / "part/evaluations.parquet", "evaluations", [evaluation_row("one")])
    collect([tmp_path / "part"], tmp_path / "store")
    assert read_results(tmp_path / "store").runs["delta"].tolist() == [odd]


def test_account_grids_keeps_exact_delta(odd) -> None:
    accounts = account_grids(grid(delta=odd, epsilon=0.5))
    assert [one.delta for one in accounts] == accounts_table(accounts)["delta"].tolist() == [odd]
    with pytest.raises(OsoError, match=rf"at delta {odd!r} \(9 runs\)"):
        check_budgets(accounts)


def test_provenance_keeps_exact_delta(odd) -> None:
    rows = pd.DataFrame([run_row("one", delta=odd), run_row("two", delta=1e-5, epochs=2.5)])
    said = dict(provenance(rows))
    assert sorted(map(float, said["delta"].split(", "))) == sorted([odd, 1e-5])
    assert (said["epochs"], float(format_delta(odd))) == ("2.5, 10", odd)
