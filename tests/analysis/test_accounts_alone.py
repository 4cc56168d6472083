"""Runs without a search: each row has the budget to itself, and none hides behind the others."""

import pytest
from tests.analysis.conftest import EPSILON, RATE, STEPS, grid, ledger

from oso_dp.accounting.accountants import epsilon_of
from oso_dp.accounting.search import SHAPES, Search, epsilon_of_stopped
from oso_dp.analysis.accounts import account, accounts_table, require_within
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling

ALONE = Search(PoissonSampling(RATE), STEPS, 1, "single").noise_multiplier(EPSILON, 1e-5)


def guesses(rows=9, **other):
    claim = {"selection": "single", "noise_multiplier": ALONE, "ledger": ledger(ALONE)}
    return grid(rows, **{**claim, **other})


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_each_row_costs_the_budget_however_many_there_are(rows) -> None:
    (found,) = account(guesses(rows, seeds=(0, 1, 2)))
    assert found.name == "glyphs.online.k9.eps3.single"
    assert (found.runs, found.stored, found.seeds) == (1, 1, 3)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)
    require_within([found])
    (composed,) = account(guesses(rows, selection="composition"))
    assert rows > 9 or composed.spent > 1.5 * EPSILON  # what the nine together would cost
    assert not composed.within


def test_other_accountants_can_do_it_too() -> None:
    (row,) = accounts_table(account(guesses())).to_dict("records")
    assert 0.5 * EPSILON < row["pld"] < row["rdp"]
    assert 0.5 * EPSILON < row["prv"] < row["rdp"]


@pytest.mark.parametrize("place", [0, 13, 26])
def test_one_row_above_the_budget_is_seen_among_many(place) -> None:
    rows = guesses(seeds=(0, 1, 2))
    rows.loc[place, ["ledger", "noise_multiplier"]] = [ledger(0.9 * ALONE), 0.9 * ALONE]
    found = account(rows)
    assert sum(one.within for one in found) == 1
    with pytest.raises(OsoError, match=r"eps3\.single: its ledgers cost epsilon .* \(1 runs\)"):
        require_within(found)


@pytest.mark.parametrize("costly", [0, 1, 2])
def test_the_costliest_row_speaks_for_all(costly) -> None:
    """A row may have more noise than it claims; the others are not cheaper for it."""
    rows = guesses(seeds=(0, 1, 2))
    rows.loc[rows["seed"] != costly, "ledger"] = ledger(2 * ALONE)
    (found,) = account(rows)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


@pytest.mark.parametrize("at", [1, STEPS // 2])
def test_one_that_diverged_is_charged_whole(at) -> None:
    rows = guesses(rows=1)
    rows.loc[0, ["status", "diverged_at", "ledger"]] = ["diverged", at, ledger(ALONE, at)]
    (found,) = account(rows)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


def test_rows_of_other_code_that_claim_a_grid_are_no_cheaper() -> None:
    """Whatever `settings` say of a grid's size, a row is charged for itself, and whole."""
    (found,) = account(guesses(settings=None))
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)
    assert found.verdict == "within"


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("selection", ["single", "composition", "random_stopping"])
def test_rows_are_priced_at_the_delta_that_they_name(selection, delta) -> None:
    nu = 3.0
    (found,) = account(
        grid(selection=selection, delta=delta, noise_multiplier=nu, ledger=ledger(nu))
    )
    one = Ledger.from_json(ledger(nu))
    expected = epsilon_of([one] * (1 if selection == "single" else 9), delta)
    if selection == "random_stopping":  # bought by no shape: the costliest
        expected = max(epsilon_of_stopped(one, 9, shape, delta) for shape in SHAPES.values())
    assert found.spent == pytest.approx(expected, rel=1e-9)
