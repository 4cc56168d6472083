"""Accounts do not depend on where a row stands, and keep what differs apart."""

import json
from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pytest
from tests.analysis.conftest import NINE, NU, STEPS, grid, ledger, rows_of, two_plans, with_second
from tests.analysis.test_accounts import STOPPED_NU, stopping_grid
from tests.analysis.test_linear_scaling_accounts import PARTS, RATE, STUDY, noise_of
from tests.analysis.test_linear_scaling_accounts import STEPS as SCALED_STEPS
from tests.analysis.test_linear_scaling_accounts import rows as scaled_rows
from tests.planned_rows import rows_of as planned_rows

from oso_dp.accounting.search_accounting.base import full_run_ledger, pad_to_full_run
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA, RandomStoppingSearch
from oso_dp.analysis.accounts import (
    GridAccount,
    account_grids,
    check_budgets,
    most_expensive,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise


def test_account_grids_separates_single_by_k() -> None:
    """Single runs from grids of k = 2 and k = 5 have two accounts, each with k in its name."""
    config = parse_config({**STUDY, "search_accounting": "single", "values_per_axis": [2, 5]}, "x")
    plan = make_plan_with_noise(config, defaultdict(lambda: 5.0))
    found = account_grids(pd.DataFrame(planned_rows(plan)["runs"]))
    assert [one.name for one in found] == [f"glyphs.online.k{k}.eps3.single" for k in (2, 5)]


@pytest.mark.parametrize("there", [9, 1])
def test_account_grids_separates_query_noises(there: int) -> None:
    other = grid(**with_second(9.0))[:there]
    rows = pd.concat([grid(**with_second(7.0)), other], ignore_index=True)
    found = account_grids(rows)
    assert [(one.stored, one.is_within_budget) for one in found] == [(9, True), (there, True)]


@pytest.mark.parametrize(
    ("spent", "budgets", "nearest"),
    [((0.9, 8.5), (1.0, 9.0), 1), ((2.9, 8.8), (3.0, 9.0), 1), ((0.99, 8.5), (1.0, 9.0), 0)],
)
def test_most_expensive_compares_budget_ratios(spent, budgets, nearest) -> None:
    """The most expensive account has the largest ratio of spent to budgeted epsilon."""
    both = [
        GridAccount("mnist", "online", 9, budget, 1e-6, 1, 1, 1, cost, ())
        for cost, budget in zip(spent, budgets, strict=True)
    ]
    for order in (both, both[::-1]):
        assert most_expensive(order) == {"mnist": both[nearest]}


@pytest.mark.parametrize("rows", [9, 10, 18])
def test_account_grids_random_stopping_points_charged(rows: int) -> None:
    (found,) = account_grids(stopping_grid(rows=rows))
    larger = RandomStoppingSearch(
        PoissonSampling(0.02), STEPS, rows, stopping_eta=STOPPING_ETA["logarithmic"]
    )
    assert found.runs == rows
    assert found.spent == pytest.approx(larger.epsilon(STOPPED_NU, 1e-5), rel=1e-9)
    assert found.is_within_budget == (rows == 9)


@pytest.mark.parametrize("costly", [0, 1, 2])
def test_account_grids_costly_seed_exceeds_budget(costly: int) -> None:
    """Ten stored runs of one seed exceed the budget, although the other seeds have three."""
    seeds = [grid(rows=10 if seed == costly else 3, k=10, seeds=(seed,)) for seed in range(3)]
    (found,) = account_grids(pd.concat(seeds, ignore_index=True))
    with pytest.raises(OsoError, match="its ledgers cost epsilon"):
        check_budgets([found])


@pytest.mark.parametrize("place", [0, 4, 7])
def test_account_grids_ignores_row_order(place: int) -> None:
    """The cost does not depend on the row order, also where one run diverged."""
    rows = grid(rows=8)
    rows.loc[place, ["status", "diverged_at", "ledger"]] = ["diverged", 5, ledger(NU, 5)]
    costs = {account_grids(rows.iloc[order])[0].spent for order in _orders(len(rows))}
    assert max(costs) == pytest.approx(min(costs), rel=1e-12)


@pytest.mark.parametrize("part", PARTS)
def test_account_grids_linear_scaling_ignores_order(part) -> None:
    """Neither missing rows nor a diverged run make the cost depend on the row order."""
    rows = scaled_rows()
    mine = rows.index[rows["stage"] == part]
    nu = noise_of(rows)[PARTS.index(part)]
    diverged = ["diverged", SCALED_STEPS // 2, ledger(nu, SCALED_STEPS // 2, RATE)]
    rows.loc[mine[0], ["status", "diverged_at", "ledger"]] = diverged
    rows = rows.drop([mine[1], mine[-1]])
    found = [account_grids(rows.iloc[order])[0] for order in _orders(len(rows))]
    assert len({one.runs for one in found}) == 1
    costs = [one.spent for one in found]
    assert max(costs) == pytest.approx(min(costs), rel=1e-12)


def _orders(count: int) -> list[list[int]]:
    """Forwards, backwards, and from the middle."""
    places = list(range(count))
    return [places, places[::-1], places[count // 2 :] + places[: count // 2]]


@pytest.mark.parametrize("steps", [20_000, 10**6])
@pytest.mark.parametrize("made", [1, 9999, 15_000])
def test_pad_to_full_run_completes_steps(made: int, steps: int) -> None:
    one = Ledger(PoissonSampling(0.02), [((SumQuery("g", 1.5),), made)])
    whole = pad_to_full_run(one, full_run_ledger([one], steps))
    assert whole.step_count == steps


@pytest.mark.parametrize("epsilon", [0.125, 0.5, 3.25, 12.5])
def test_grid_account_name_shows_epsilon(epsilon: float) -> None:
    known = ("mnist", "online", 9, epsilon, 1e-5, 1, 1, 1, 0.1, ())
    assert GridAccount(*known).name == f"mnist.online.k9.eps{epsilon}"
    assert GridAccount(*known, total=True).name == f"mnist.total.eps{epsilon}"


@pytest.mark.parametrize("column", ["delta", "epsilon", "learning_rate"])
def test_account_grids_unplanned_diverged_row_rejected(column: str, repo) -> None:
    plan, _ = two_plans(repo, "a method's constant")
    rows = rows_of(plan, NINE)
    nu = rows["noise_multiplier"].iloc[0]
    steps, rate = int(rows["steps"].iloc[0]), json.loads(rows["ledger"].iloc[0])["sampling_rate"]
    assert steps > 2
    rows.loc[3, ["status", "diverged_at", "ledger"]] = ["diverged", 2, ledger(nu, 2, rate)]
    account_grids(rows, plan)
    rows.loc[3, column] *= 0.5
    with pytest.raises(OsoError, match=f"{column}: .*, as in the plan"):
        account_grids(rows, plan)


@pytest.mark.parametrize("place", [0, 150, 300])
def test_check_budgets_checks_all_accounts(place: int) -> None:
    """An account above its budget raises at any position among 300 others."""
    within = GridAccount("mnist", "online", 9, 3.0, 1e-5, 9, 9, 1, 2.9, ())
    accounts = [within] * 300
    check_budgets(accounts)
    accounts.insert(place, replace(within, spent=3.1))
    with pytest.raises(OsoError, match=r"its ledgers cost epsilon 3\.1"):
        check_budgets(accounts)
