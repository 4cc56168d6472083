"""What differs in any column is two searches, and each costs what it costs by itself."""

from dataclasses import replace

import pandas as pd
import pytest
from tests.analysis.conftest import (
    EPSILON,
    NINE,
    NU,
    STEPS,
    grid,
    ledger,
    rows_of,
    two_plans,
    with_second,
)
from tests.analysis.test_linear_scaling_accounts import STEPS as SCALED_STEPS
from tests.analysis.test_linear_scaling_accounts import rows as scaled_rows
from tests.stores import named

from oso_dp.analysis import accounts
from oso_dp.analysis.accounts import account_grids
from oso_dp.study.plan import Plan

# Beside rows of a data set whose size nobody knows: those of another search, by a column.
OTHERS = {
    "dataset": {"dataset": "yours"},
    "method": {"method": "adam_wosm"},
    "k": {"k": 10},
    "epsilon": {"epsilon": 4.0},
    "delta": {"delta": 1e-6},
    "search_accounting": {"search_accounting": "single"},
    "momentum": {"momentum": 0.5},
    "noise_multiplier": {"noise_multiplier": 2 * NU, "ledger": ledger(2 * NU)},
    "query_noise_multiplier": with_second(9.0),
    "examples": {"examples": 5990, "ledger": ledger(rate=120 / 5990)},  # as many steps
    "batch_size": {"batch_size": 240, "steps": 100, "ledger": ledger(steps=100, rate=0.04)},
    "epochs": {"epochs": 8, "steps": 2 * STEPS, "ledger": ledger(steps=2 * STEPS)},
    "steps": {"epochs": 8, "steps": 2 * STEPS, "ledger": ledger(steps=2 * STEPS)},  # of the others
    "precision": {"precision": "bfloat16"},
}
# The same of searches by the linear scaling rule, whose rows have a noise each.
SCALED = {
    **{name: OTHERS[name] for name in ("dataset", "method", "k", "epsilon", "delta", "momentum")},
    "examples": {"examples": 5990},
    "batch_size": {"batch_size": 121},
    "epochs": {"epochs": 4, "steps": 2 * SCALED_STEPS},
    "steps": {"epochs": 4, "steps": 2 * SCALED_STEPS},  # which the others decide
    "precision": {"precision": "bfloat16"},
}
SCALED_OPTIONS = {
    "model": "cnn",
    "method_options": "initial_threshold=0.2",
    "grid_runs": 4,
    "evaluate_every": 7,
    "schedule": "linear",
    "averaging": 0.99,
    "trial_fractions": "0.1, 0.3",
}
SCALED |= {name: {name: value} for name, value in SCALED_OPTIONS.items()}


def test_search_columns_fully_covered() -> None:
    assert OTHERS.keys() == {*accounts._SEARCH, *accounts._NOISE}
    assert SCALED.keys() == {*accounts._SEARCH} - {"search_accounting"} | {*SCALED_OPTIONS}


@pytest.mark.parametrize("column", OTHERS)
@pytest.mark.parametrize(("there", "order"), [(9, 1), (1, 1), (1, -1)])
def test_account_grids_separates_searches(column: str, there: int, order: int) -> None:
    """Two searches that differ in one column have the accounts that each has alone."""
    both = [grid(dataset="mine"), grid(**{"dataset": "mine"} | OTHERS[column])[:there]][::order]
    found = account_grids(pd.concat(both, ignore_index=True))
    assert found == [one for rows in both for one in account_grids(rows)]
    assert len(found) == 2


@pytest.mark.parametrize("column", SCALED)
def test_account_grids_separates_linear_scaling_searches(column: str) -> None:
    both = [scaled(), scaled(**SCALED[column])]
    found = account_grids(pd.concat(both, ignore_index=True))
    assert found == [one for rows in both for one in account_grids(rows)]
    assert len(found) == 2


def scaled(**other) -> pd.DataFrame:
    """A search by the linear scaling rule, with ledgers and identities of what its rows say."""
    rows = scaled_rows().assign(**{"dataset": "mine"} | other)
    rates = rows["batch_size"] / rows["examples"]
    facts = zip(rows["noise_multiplier"], rows["steps"], rates, strict=True)
    return named(rows.assign(ledger=[ledger(*one) for one in facts]))


@pytest.mark.parametrize("points", [1, 4, 9])
def test_account_grids_partial_plan_keeps_size(points: int, repo) -> None:
    """A plan of some points of a grid (`grid_points: paper_best`) charges the whole grid."""
    plan = some_points(two_plans(repo, "seeds")[0], points)
    rows = rows_of(plan, NINE)
    (found,) = account_grids(rows, plan)
    assert (found.runs, found.stored) == (9, points)
    assert found.spent == pytest.approx(EPSILON, rel=1e-4)


def some_points(plan: Plan, count: int) -> Plan:
    (cohort,) = plan.cohorts
    return replace(plan, cohorts=(cohort.with_runs(cohort.points[:count], cohort.seeds),))
