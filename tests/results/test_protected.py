"""Rows on data that are not public: how many runs their one epsilon pays for."""

import pandas as pd
import pytest
from tests.stores import options

from oso_dp.errors import OsoError
from oso_dp.results.checks import shared_budgets
from oso_dp.results.collect import collect
from oso_dp.results.write import write_table
from oso_dp.study.identity import make_run_id

from .conftest import evaluation_row, run_row


@pytest.mark.parametrize("sizes", [(12, 5), (5, 12)])
def test_of_several_studies_the_largest_number_counts(sizes) -> None:
    names = ["patients", "patients", "glyphs"]
    rows = pd.DataFrame({"dataset": names, "budget_runs": [*sizes, None]})
    assert shared_budgets(rows) == {"patients": 12}


def test_two_data_sets_of_which_the_rows_say_the_same_share_no_budget() -> None:
    names = ["patients", "pupils", "patients"]
    rows = pd.DataFrame({"dataset": names, "budget_runs": [12] * 3})
    assert shared_budgets(rows) == {"patients": 12, "pupils": 12}


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("differ", ["ledger", "value"])
def test_of_two_trainings_of_one_run_none_is_thrown_away(differ, public, tmp_path) -> None:
    declared = {"data_version": "1", "randomness": "system"}
    declared |= {"budget_runs": None if public else 4}
    parts = []
    for place in range(2):
        row = run_row("one", dataset="patients", **options(**declared))
        if differ == "ledger" and place:
            row = {**row, "status": "diverged", "diverged_at": row["steps"]}
        row["run_id"] = make_run_id(row)
        value = 0.5 + 0.1 * place if differ == "value" else 0.5
        parts.append(tmp_path / f"{place}")
        scores = [evaluation_row(row["run_id"], value=value)]
        write_table(parts[-1] / "evaluations.parquet", "evaluations", scores)
        write_table(parts[-1] / "runs.parquet", "runs", [row])
    said_of_it = "measured twice" if public else "trained twice on data that are not public; both"
    with pytest.raises(OsoError, match=said_of_it):
        collect(parts, tmp_path / "store")
