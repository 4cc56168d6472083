"""Stored runs on private data: one account for all, whoever leaves something out."""

import json
import math
from collections import defaultdict
from copy import deepcopy

import pandas as pd
import pytest
from tests.planned_rows import rows_of
from tests.study.test_private_datasets import RUNS, STUDY, planned

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import (
    format_spent_epsilon,
    format_used_noise_multiplier,
)
from oso_dp.analysis.accounts import account_datasets, account_grids, check_budgets
from oso_dp.analysis.study_statement import make_stored_statements
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.results.checks import find_runs_error, records
from oso_dp.results.collect import collect
from oso_dp.results.conflicts import check_budget_unspent
from oso_dp.results.write import write_table
from oso_dp.study.config import parse_config
from oso_dp.study.identity import make_run_id
from oso_dp.study.plan import make_plan_with_noise


@pytest.fixture
def plan(offer):
    offer()
    return planned()


def table(*plans) -> pd.DataFrame:
    return pd.DataFrame([row for plan in plans for row in rows_of(plan)["runs"]])


def test_account_grids_total_within_budget(plan) -> None:
    for plans in ([], [plan]):
        (total,) = account_grids(table(plan), *plans)
        assert (total.dataset, total.runs, total.stored, total.seeds) == ("patients", 12, 12, 2)
        assert total.name == "patients.total.eps8"
        assert 7.99 < total.spent <= 8
        check_budgets([total])


def test_account_grids_missing_runs_charged(plan) -> None:
    """A store of one method, or of one seed, costs as much as the whole study."""
    runs = table(plan)
    (whole,) = account_grids(runs)
    for part in (runs[runs["method"] == "online"], runs[runs["seed"] == 1]):
        (total,) = account_grids(part)
        assert total.spent == pytest.approx(whole.spent, rel=1e-9)
        assert (total.runs, total.stored) == (RUNS, len(part))


def test_account_datasets_mixed_units_rejected(plan) -> None:
    runs = table(plan)
    runs.loc[runs["method"] == "online", "unit"] = "user"
    with pytest.raises(OsoError, match="patients: has runs that protect users and others that"):
        account_datasets(runs)


def test_account_grids_adds_studies(plan) -> None:
    other = planned(epochs=3)
    (total,) = account_grids(table(plan, other))
    assert total.runs == 2 * RUNS
    with pytest.raises(OsoError, match=r"patients.total.eps8: its ledgers cost epsilon 1\d\.\d+"):
        check_budgets([total])


@pytest.mark.parametrize(
    "other",
    [{"epochs": 3}, {"batch_size": 30}, {"delta": 1e-6}, {"seeds": [0, 1, 2]}],
    ids=lambda other: next(iter(other)),
)
def test_account_grids_differing_studies_charged_whole(plan, other) -> None:
    """Each of two studies is charged for all its runs, at the price of its one stored run."""
    noise = {cohort.name: cohort.noise_multiplier for cohort in plan.cohorts}
    plans = plan, make_plan_with_noise(parse_config({**deepcopy(STUDY), **other}, "x"), noise)
    rows = [table(one).iloc[-1:] for one in plans]
    (total,) = account_grids(pd.concat(rows, ignore_index=True))
    counts = [sum(len(cohort.runs) for cohort in one.cohorts) for one in plans]
    assert (total.runs, total.stored) == (sum(counts), 2)
    ledgers = [
        Ledger.from_json(stored["ledger"].iloc[0])
        for stored, count in zip(rows, counts, strict=True)
        for _ in range(count)
    ]
    assert total.spent == pytest.approx(compute_epsilon(ledgers, total.delta), rel=1e-9)


def test_account_grids_versions_share_total(plan, offer) -> None:
    offer(version="'2'")
    with pytest.raises(OsoError, match=r"patients\.total"):
        check_budgets(account_grids(table(plan, planned())))


def test_account_grids_lower_noise_detected(plan) -> None:
    runs = table(plan)
    ledger = Ledger.from_json(runs.loc[0, "ledger"])
    steps = [((SumQuery("clipped_gradient", 0.5),), ledger.step_count)]
    runs.loc[0, "ledger"] = Ledger(ledger.sampling, steps).to_json()
    runs.loc[0, "query_noise_multiplier"] = math.nan
    with pytest.raises(OsoError, match=r"noise multiplier 0\.5"):
        account_grids(runs)
    runs.loc[0, "noise_multiplier"] = 0.5
    with pytest.raises(OsoError, match=r"patients\.total"):
        check_budgets(account_grids(runs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_version": None}, "data_version is missing"),
        ({"grid_runs": None}, "grid_runs is missing"),
        ({"budget_runs": None}, "run_id: not the identity of its values"),
        ({"budget_runs": 2}, "run_id: not the identity of its values"),
        ({"data_version": "2"}, "run_id: not the identity of its values"),
        ({"randomness": "seeded"}, "randomness: seeded; must be system, since the data"),
    ],
)
def test_account_grids_altered_options_rejected(plan, change, message) -> None:
    runs = table(plan)
    with pytest.raises(OsoError, match=message):
        account_grids(runs.assign(**change))


def test_find_runs_error_names_forbidden_choice(plan) -> None:
    runs = table(plan)
    runs.loc[0, ["method", "epsilon", "delta", "noise_multiplier"]] = ["no_dp", None, None, None]
    assert "method: no_dp; must be private" in str(find_runs_error(runs))
    runs = table(plan).assign(search_accounting="random_stopping")
    message = "search_accounting: random_stopping; must be composition, since the data"
    assert message in str(find_runs_error(runs))


def part(folder, plan, *cohorts):
    for kind, rows in rows_of(plan).items():
        mine = {run.run_id for one in cohorts or plan.cohorts for run in one.runs}
        write_table(folder / f"{kind}.parquet", kind, [r for r in rows if r["run_id"] in mine])
    return folder


def test_check_budget_unspent_other_study_rejected(plan, tmp_path) -> None:
    store = tmp_path / "store"
    check_budget_unspent({store: "x"}, plan.cohorts)
    collect([part(tmp_path / "part", plan, plan.cohorts[0])], store)
    check_budget_unspent({store: "x"}, plan.cohorts)  # its own runs, of which some are there
    with pytest.raises(OsoError, match="has 4 runs on patients that are not of this study"):
        check_budget_unspent({store: "x"}, planned(seeds=[0, 1, 2]).cohorts)


def test_collect_checks_stored_dataset_total(plan, tmp_path) -> None:
    """`collect` checks the total of the data set, including cohorts that were stored before."""

    def check(runs) -> None:
        check_budgets(account_grids(runs))

    other = planned(epochs=3)
    collect([part(tmp_path / "a", plan, plan.cohorts[0])], tmp_path / "store", check=check)
    with pytest.raises(OsoError, match=r"patients\.total"):
        collect([part(tmp_path / "b", other, other.cohorts[1])], tmp_path / "store", check=check)


@pytest.mark.parametrize("order", [1, -1])
def test_account_grids_mixed_declarations_rejected(order: int, plan) -> None:
    """Runs that call the same data public would be left out of the total."""
    rows = table(plan)
    public = rows.iloc[:1].assign(budget_runs=None, randomness="seeded")
    public["run_id"] = [make_run_id(row) for row in records(public)]
    both = pd.concat([rows, public][::order], ignore_index=True)
    with pytest.raises(OsoError, match="patients: has 1 runs that declare the data as public, and"):
        account_grids(both)


@pytest.mark.parametrize("change", [{"evaluate_every": 3}, {"schedule": "linear"}])
def test_account_grids_other_options_other_study(change, plan) -> None:
    """Studies of equal noise and size are told apart by what all runs of a study share."""
    other = planned(**change)
    one = table(plan).iloc[:6]
    rows = pd.concat([one, table(other).iloc[:6]], ignore_index=True)
    (merged,), (alone,) = account_grids(rows), account_grids(one)
    assert (alone.runs, merged.runs) == (12, 24)
    assert merged.spent > alone.spent


def test_make_stored_statements_matches_accounts(plan) -> None:
    runs = table(plan)
    accounts = account_grids(runs)
    (statement,) = make_stored_statements(runs, accounts)
    assert statement.epsilon == accounts[0].spent
    assert (statement.runs, statement.stored) == (12, 12)
    assert statement.methods == {"online": 4, "fixed_threshold": 8}
    assert "of which 12 are stored" in str(statement)


def test_make_stored_statements_reports_spent_epsilon(plan) -> None:
    """The statement on two studies has the spent epsilon, the least noise and the most steps."""
    runs = table(plan, planned(epochs=3))
    accounts = account_grids(runs)
    (statement,) = make_stored_statements(runs, accounts)
    noise = runs["noise_multiplier"]
    assert (statement.noise_multiplier, statement.steps) == (noise.min(), 9)
    assert noise.min() < noise.max()
    assert f"({format_spent_epsilon(accounts[0].spent)}, 1e-05)-differential privacy" in str(
        statement
    )
    assert "the total budget is epsilon 8." in str(statement)
    assert f"noise multiplier {format_used_noise_multiplier(noise.min())}" in str(statement)


def test_account_grids_public_data_without_total(offer) -> None:
    offer(public="True")
    plan = planned(randomness="seeded")
    accounts = account_grids(table(plan))
    assert [one.name for one in accounts] == [cohort.name for cohort in plan.cohorts]
    assert make_stored_statements(table(plan), accounts) == []


@pytest.mark.parametrize("noise_factor", [1.0, 1.5], ids=["version", "noise"])
def test_account_grids_versions_noises_charged_whole(plan, offer, noise_factor):
    """Studies of two data versions, or of two noise multipliers, are each charged whole."""
    noise = {cohort.name: cohort.noise_multiplier * noise_factor for cohort in plan.cohorts}
    if noise_factor == 1:
        offer(version="'2'")
    other = make_plan_with_noise(parse_config(deepcopy(STUDY), "x"), noise)
    rows = [table(one).iloc[[place]] for one, place in ((plan, -1), (other, 0))]
    (total,) = account_grids(pd.concat(rows, ignore_index=True))
    assert total.runs == 2 * RUNS


@pytest.mark.parametrize("epsilon", [4, 20])
def test_account_grids_two_budgets_charged_whole(plan, epsilon) -> None:
    """Studies of two budgets are each charged whole, also at the same noise multiplier."""
    noise = {cohort.noise_multiplier for cohort in plan.cohorts}
    study = deepcopy(STUDY)
    study["datasets"]["patients"]["epsilons"] = [epsilon]
    other = make_plan_with_noise(parse_config(study, "x"), defaultdict(noise.pop().__float__))
    (total,) = account_grids(table(plan, other))
    assert (total.runs, total.epsilon) == (2 * RUNS, min(8, epsilon))
    rows = [table(plan).iloc[:1], table(other).iloc[:1]]
    (total,) = account_grids(pd.concat(rows, ignore_index=True))
    assert (total.runs, total.stored) == (2 * RUNS, 2)


def test_account_grids_dataset_sizes_charged_whole(plan, offer) -> None:
    """Studies of two data set sizes are each charged whole, also at the same noise multiplier."""
    noise = {cohort.name: cohort.noise_multiplier for cohort in plan.cohorts}
    offer(examples="50", load="lambda: arrays(50)", test_examples="30")
    other = make_plan_with_noise(parse_config(deepcopy(STUDY), "x"), noise)
    rows = [table(plan).iloc[-1:], table(other).iloc[-1:]]
    (total,) = account_grids(pd.concat(rows, ignore_index=True))
    assert (total.runs, total.stored) == (2 * RUNS, 2)


@pytest.mark.parametrize("batch_size", [10, 30])
def test_make_stored_statements_reports_largest_rate(plan, batch_size) -> None:
    runs = table(plan, planned(batch_size=batch_size))
    (statement,) = make_stored_statements(runs, account_grids(runs))
    assert statement.sampling_rate == max(20, batch_size) / 60
    assert f"sampling rate {max(20, batch_size) / 60:.6g} of 60 examples" in str(statement)


@pytest.mark.parametrize("at", [1, 5])
@pytest.mark.parametrize("places", [(0, 7), range(RUNS)], ids=["two", "all"])
def test_account_grids_diverged_runs_charged_whole(plan, at, places) -> None:
    """A diverged run is charged for all its steps: the step of divergence depends on the data."""
    runs = table(plan)
    whole = account_grids(runs)[0].spent
    for place in places:
        short = json.loads(runs.loc[place, "ledger"])
        short["steps"][0]["count"] = at
        runs.loc[place, ["status", "diverged_at", "ledger"]] = ["diverged", at, json.dumps(short)]
    (total,) = account_grids(runs)
    assert [ledger.step_count for ledger in total.ledgers] == [6] * RUNS
    assert total.spent == pytest.approx(whole, rel=1e-9)


def test_account_grids_large_study_charged_whole(offer) -> None:
    """A study of 2,100 runs is charged whole, although only one of them is stored."""
    offer()
    large = planned(values_per_axis=[20], seeds=[0, 1, 2, 3, 4])
    (total,) = account_grids(table(large).iloc[:1])
    assert (total.runs, total.stored) == (5 * (20 + 20 * 20), 1)
    assert 7.99 < total.spent <= 8
