"""A statement of protected data says what all of their runs cost, of whatever kind they are."""

import json
from collections import defaultdict
from copy import deepcopy

import pandas as pd
import pytest
from tests.planned_rows import rows_of
from tests.study.test_private_datasets import RUNS, STEPS, STUDY

from oso_dp.accounting.search import Search
from oso_dp.analysis.accounts import account_grids
from oso_dp.analysis.study_statement import make_planned_statements, make_stored_statements
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import parse_config
from oso_dp.study.plan import Plan, make_plan_with_noise


def table(*plans: Plan) -> pd.DataFrame:
    return pd.DataFrame([row for plan in plans for row in rows_of(plan)["runs"]])


def by_hand(noise=(9.0, 9.0), **changes) -> Plan:
    """A plan with these noise multipliers of its two cohorts, which nobody computed."""
    config = parse_config({**deepcopy(STUDY), **changes}, "x")
    name = next(iter(config.datasets))
    names = [f"{name}.{method}.k2.eps8" for method in ("online", "fixed_threshold")]
    return make_plan_with_noise(config, dict(zip(names, noise, strict=True)))


@pytest.mark.parametrize("noise", [(9.0, 11.0), (11.0, 9.0)])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_make_planned_statements_prices_least_noise(offer, noise, delta) -> None:
    offer()
    (statement,) = make_planned_statements(by_hand(noise, delta=delta).cohorts)
    search = Search(PoissonSampling(1 / 3), STEPS, RUNS)
    assert statement.epsilon == pytest.approx(search.epsilon(9.0, delta), rel=1e-9)
    assert (statement.noise_multiplier, statement.delta) == (9.0, delta)


@pytest.mark.parametrize(("delta", "said"), [(0.016, False), (0.017, True)])
def test_study_statement_large_delta_warns(offer, delta: float, said: bool) -> None:
    """Planned and stored statements warn of a delta above 1 / 60, for 60 examples."""
    offer()
    plan = by_hand(delta=delta)
    runs = table(plan)
    for (statement,) in (
        make_planned_statements(plan.cohorts),
        make_stored_statements(runs, account_grids(runs)),
    ):
        assert ("\nDelta is not below 1 / 60: " in str(statement)) == said


@pytest.mark.parametrize("method", ["online", "fixed_threshold"])
def test_make_stored_statements_reports_run_counts(offer, method) -> None:
    offer()
    runs = table(by_hand())
    runs = runs[runs["method"] == method]
    (statement,) = make_stored_statements(runs, account_grids(runs))
    assert (statement.runs, statement.stored) == (RUNS, len(runs))
    assert f"Composed: {RUNS} runs, of which {len(runs)} are stored" in str(statement)


@pytest.mark.parametrize("turned", [False, True])
def test_make_stored_statements_names_both_versions(offer, turned) -> None:
    offer()
    plans = [by_hand()]
    offer(version="'2'", examples="50", load="lambda: arrays(50)", test_examples="30")
    plans.append(by_hand())
    runs = table(*plans[:: -1 if turned else 1])
    (statement,) = make_stored_statements(runs, account_grids(runs))
    assert (statement.version, statement.records) == ("1 and 2", 60)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("epochs", [1, 5])
def test_make_stored_statements_reports_most_steps(offer, epochs: int, turned: bool) -> None:
    """The statement reports the steps of the longer of two studies."""
    offer()
    plans = [by_hand(), by_hand(epochs=epochs)]
    runs = table(*plans[:: -1 if turned else 1])
    (statement,) = make_stored_statements(runs, account_grids(runs))
    assert statement.steps == max(STEPS, 3 * epochs)
    assert f"after each of {statement.steps} steps of every run" in str(statement)
    assert statement.methods == {"online": 8, "fixed_threshold": 16}


def two_data_sets(offer) -> list[pd.DataFrame]:
    """Rows of two protected data sets, the second with other noise and another method less."""
    offer()
    rows = [table(by_hand())]
    offer("visits", version="'7'")
    section = deepcopy(STUDY["datasets"]["patients"])
    plan = by_hand((5.0, 5.0), datasets={"visits": section})
    visits = table(plan)
    return [*rows, visits[visits["method"] == "online"]]


@pytest.mark.parametrize("order", [1, -1])
def test_make_stored_statements_separates_datasets(offer, order: int) -> None:
    runs = pd.concat(two_data_sets(offer)[::order], ignore_index=True)
    found = {one.dataset: one for one in make_stored_statements(runs, account_grids(runs))}
    assert found.keys() == {"patients", "visits"}
    assert [found[name].version for name in ("patients", "visits")] == ["1", "7"]
    assert [found[name].noise_multiplier for name in ("patients", "visits")] == [9.0, 5.0]
    assert found["patients"].methods == {"online": 4, "fixed_threshold": 8}
    assert found["visits"].methods == {"online": 4}


@pytest.mark.parametrize("turned", [False, True])
def test_account_grids_total_takes_smallest_budget(offer, turned) -> None:
    offer()
    section = {"model": "own", "epsilons": [20], "seconds_per_step": 0.01}
    config = parse_config(
        {**deepcopy(STUDY), "datasets": {"patients": section}, "delta": 1e-4}, "x"
    )
    plans = [by_hand(), make_plan_with_noise(config, defaultdict(lambda: 9.0))]
    (total,) = account_grids(table(*plans[:: -1 if turned else 1]))
    assert (total.epsilon, total.delta) == (8, 1e-5)


@pytest.mark.parametrize("place", [0, 5, 11])
def test_account_grids_total_ignores_row_order(offer, place: int) -> None:
    """Neither missing rows nor a diverged run make the total depend on the row order."""
    offer()
    runs = table(by_hand())
    less = json.loads(runs.loc[place, "ledger"])
    less["steps"][0]["count"] = 2
    runs.loc[place, ["status", "diverged_at", "ledger"]] = ["diverged", 2, json.dumps(less)]
    runs = runs.drop([1, 7])
    costs = [account_grids(rows)[0].spent for rows in (runs, runs[::-1])]
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_make_planned_statements_separates_datasets(offer) -> None:
    """Two data sets of equal version and size have the statements that each has alone."""
    offer()
    patients = by_hand()
    offer("visits")
    section = deepcopy(STUDY["datasets"]["patients"])
    visits = by_hand((5.0, 5.0), datasets={"visits": section})
    found = make_planned_statements([*patients.cohorts, *visits.cohorts])
    assert [one.dataset for one in found] == ["patients", "visits"]
    alone = [make_planned_statements(plan.cohorts) for plan in (patients, visits)]
    assert found == [one for statements in alone for one in statements]
    assert found[0].epsilon < found[1].epsilon
