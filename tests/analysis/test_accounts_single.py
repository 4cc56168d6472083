"""Runs without a search: each row has the budget to itself, and none hides behind the others."""

import pytest
from tests.analysis.conftest import EPSILON, RATE, STEPS, grid, ledger
from tests.searches import make_search

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    compute_random_stopping_epsilon,
)
from oso_dp.analysis.accounts import account_grids, accounts_table, check_budgets
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling

ALONE = make_search(PoissonSampling(RATE), STEPS, 1, "single").noise_multiplier(EPSILON, 1e-5)


def guesses(rows=9, **other):
    claim = {"search_accounting": "single", "noise_multiplier": ALONE, "ledger": ledger(ALONE)}
    return grid(rows, **{**claim, **other})


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_account_grids_rows_charged_individually(rows) -> None:
    (found,) = account_grids(guesses(rows, seeds=(0, 1, 2)))
    assert found.name == "glyphs.online.k9.eps3.single"
    assert (found.runs, found.stored, found.seeds) == (1, 1, 3)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)
    check_budgets([found])
    (composed,) = account_grids(guesses(rows, search_accounting="composition"))
    assert rows > 9 or composed.spent > 1.5 * EPSILON  # what the nine together would cost
    assert not composed.is_within_budget


def test_accounts_table_other_accountants_below_rdp() -> None:
    (row,) = accounts_table(account_grids(guesses())).to_dict("records")
    assert 0.5 * EPSILON < row["pld"] < row["rdp"]
    assert 0.5 * EPSILON < row["prv"] < row["rdp"]


@pytest.mark.parametrize("place", [0, 13, 26])
def test_check_budgets_one_excess_row_rejected(place) -> None:
    rows = guesses(seeds=(0, 1, 2))
    rows.loc[place, ["ledger", "noise_multiplier"]] = [ledger(0.9 * ALONE), 0.9 * ALONE]
    found = account_grids(rows)
    assert sum(one.is_within_budget for one in found) == 1
    with pytest.raises(OsoError, match=r"eps3\.single: its ledgers cost epsilon .* \(1 runs\)"):
        check_budgets(found)


@pytest.mark.parametrize("costly", [0, 1, 2])
def test_account_grids_costliest_row_charged(costly) -> None:
    """The account charges the row with the most steps in its ledger."""
    rows = guesses(seeds=(0, 1, 2))
    others = rows["seed"] != costly
    rows.loc[others, ["status", "diverged_at", "ledger"]] = ["diverged", 1, ledger(ALONE, 1)]
    (found,) = account_grids(rows)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("at", [1, STEPS // 2])
def test_account_grids_diverged_run_charged_whole(at) -> None:
    rows = guesses(rows=1)
    rows.loc[0, ["status", "diverged_at", "ledger"]] = ["diverged", at, ledger(ALONE, at)]
    (found,) = account_grids(rows)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("search_accounting", ["single", "composition", "random_stopping"])
def test_account_grids_prices_at_row_delta(search_accounting, delta) -> None:
    nu = 3.0
    (found,) = account_grids(
        grid(
            search_accounting=search_accounting, delta=delta, noise_multiplier=nu, ledger=ledger(nu)
        )
    )
    one = Ledger.from_json(ledger(nu))
    expected = compute_epsilon([one] * (1 if search_accounting == "single" else 9), delta)
    if search_accounting == "random_stopping":
        expected = compute_random_stopping_epsilon(one, 9, STOPPING_ETA["logarithmic"], delta)
    assert found.spent == pytest.approx(expected, rel=1e-9)
