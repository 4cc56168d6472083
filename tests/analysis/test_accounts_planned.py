"""Rows against their plans; searches that differ in any choice are grids of their own."""

import pandas as pd
import pytest
from tests.analysis.conftest import (
    HIDDEN,
    NINE,
    NU,
    grid,
    ledger,
    rows_of,
    smallest_plan,
    two_plans,
)
from tests.analysis.test_linear_scaling_accounts import plan as scaled_plan
from tests.planned_rows import rows_of as planned_rows
from tests.stores import named

from oso_dp.analysis.accounts import account_grids, check_budgets
from oso_dp.errors import OsoError


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("epsilon", 1000.0),
        ("delta", 1e-3),
        ("seed", 7),
        ("learning_rate", 9.9),
        ("threshold", 9.9),
        ("quantile", 0.7),
        ("k", 3),
        ("search_accounting", "random_stopping"),
        ("dataset", "mine"),  # whose size nobody knows
        ("method", "adam_wosm"),
    ],
)
def test_account_grids_unplanned_row_rejected(column, value, plan_and_rows) -> None:
    plan, rows = plan_and_rows
    assert account_grids(rows, plan)[0].runs == 2
    rows.loc[0, column] = value
    with pytest.raises(OsoError, match=f"run .*: {column}: .*, as in the plan"):
        account_grids(rows, plan)


@pytest.fixture
def plan_and_rows(repo):
    """The smallest study as planned, with rows that nobody trained."""
    plan = smallest_plan(repo)
    return plan, rows_of(plan, "glyphs.online.k2.eps3")


@pytest.mark.parametrize("choice", [choice for choice in HIDDEN if choice != "seeds"])
@pytest.mark.parametrize("order", [1, -1])
def test_account_grids_search_halves_kept_separate(choice, order, repo) -> None:
    """Half of one search and half of another are two accounts, each of nine runs."""
    first, second = two_plans(repo, choice)[::order]
    one, other = (rows_of(plan, NINE) for plan in (first, second))
    assert set(one["learning_rate"]) == set(other["learning_rate"])
    low = one["learning_rate"] < one["learning_rate"].median()
    found = account_grids(pd.concat([one[low], other[~low]], ignore_index=True), first, second)
    assert [(grid.runs, grid.stored) for grid in found] == [(9, 4), (9, 5)]


@pytest.mark.parametrize("choice", [choice for choice in HIDDEN if choice != "seeds"])
def test_account_grids_two_searches_within_budget(choice, repo) -> None:
    plans = two_plans(repo, choice)
    rows = pd.concat([rows_of(p, NINE) for p in plans], ignore_index=True)
    found = account_grids(rows, *plans)
    assert [(grid.runs, grid.stored, grid.seeds) for grid in found] == [(9, 9, 2)] * 2
    check_budgets(found)
    assert account_grids(rows) == found


def test_account_grids_shared_search_counted_once(repo) -> None:
    """A search that two plans share, with other seeds in each, is one account."""
    first, second = two_plans(repo, "seeds")
    rows = [rows_of(plan, NINE) for plan in (first, second)]
    rows = pd.concat(rows, ignore_index=True).drop_duplicates("run_id")
    for plans in ((first, second), (second, first)):
        (found,) = account_grids(rows, *plans)
        assert (found.runs, found.stored, found.seeds) == (9, 9, 4)


def test_account_grids_separates_models() -> None:
    rows = pd.concat([grid(model=name) for name in "ab"], ignore_index=True)
    assert [found.runs for found in account_grids(rows)] == [9, 9]
    check_budgets(account_grids(rows))
    rows.loc[:8, "model"] = "b"
    assert [found.runs for found in account_grids(named(rows))] == [18]


@pytest.mark.parametrize("many", [3, 5])
def test_account_grids_many_searches_kept_separate(many: int) -> None:
    """Each of several searches in one cell has an account; the one above its budget raises."""
    searches = [grid(model=f"m{number}") for number in range(many)]
    searches[-1] = searches[-1].assign(ledger=ledger(0.9 * NU), noise_multiplier=0.9 * NU)
    rows = pd.concat(searches, ignore_index=True)
    found = account_grids(rows)
    assert [one.runs for one in found] == [9] * many
    with pytest.raises(OsoError, match="its ledgers cost epsilon"):
        check_budgets(found)
    alike = pd.concat(searches[:-1], ignore_index=True)
    check_budgets(account_grids(alike))


@pytest.mark.parametrize("doubled", ["batch_size", "epochs"])
def test_account_grids_unplanned_length_rejected(doubled: str, plan_and_rows) -> None:
    """A row whose batch size or epochs differ from the plan is rejected, whatever its ledger."""
    plan, rows = plan_and_rows
    other = int(rows.loc[0, doubled]) * 2
    steps = int(rows.loc[0, "steps"])
    steps = steps * 2 if doubled == "epochs" else steps // 2
    rows.loc[0, [doubled, "steps"]] = [other, steps]
    rate = rows.loc[0, "batch_size"] / rows.loc[0, "examples"]
    rows.loc[0, "ledger"] = ledger(rows.loc[0, "noise_multiplier"], steps, rate)
    with pytest.raises(OsoError, match=rf"run .*: {doubled}: {other}; .*as in the plan"):
        account_grids(rows, plan)


@pytest.mark.parametrize("column", ["evaluate_every", "momentum", "precision"])
def test_account_grids_unplanned_training_rejected(column: str) -> None:
    """A row of a planned run_id is rejected if its training options differ from the plan."""
    plan = scaled_plan(search_accounting="composition")
    rows = pd.DataFrame(planned_rows(plan)["runs"])
    account_grids(rows, plan)
    others = {"momentum": 0.5, "precision": "tf32", "evaluate_every": 77}
    rows.loc[0, column] = others[column]
    with pytest.raises(OsoError, match=f"run .*: {column}: .*, as in the plan"):
        account_grids(rows, plan)
