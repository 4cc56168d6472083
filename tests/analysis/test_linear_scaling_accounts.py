"""A search by the linear scaling rule has one account: all its trials, and one final run."""

from functools import cache

import pandas as pd
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from tests.analysis.conftest import ledger
from tests.planned_rows import rows_of

from oso_dp.analysis.accounts import account_grids, accounts_table, check_budgets
from oso_dp.errors import OsoError
from oso_dp.results.checks import find_runs_error, records
from oso_dp.study.config import parse_config
from oso_dp.study.identity import make_run_id
from oso_dp.study.plan import make_plan

PARTS = ["trial 1", "trial 2", "final"]
STEPS, RATE, N = 100, 0.02, 3
STUDY = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}},
    "values_per_axis": [N],
    "seeds": [0, 1],
    "search_accounting": "linear_scaling",
    "batch_size": 120,
    "epochs": 2,
}


@cache
def plan(**more):
    return make_plan(parse_config({**STUDY, **more}, "x"))


def rows():
    runs = pd.DataFrame(rows_of(plan())["runs"])
    runs["ledger"] = [ledger(nu, STEPS, RATE) for nu in runs["noise_multiplier"]]
    runs["query_noise_multiplier"] = None  # of one sum, so that a test may change it alone
    return runs


def noise_of(runs):
    return [runs.loc[runs["stage"] == part, "noise_multiplier"].iloc[0] for part in PARTS]


def composed(noise, counts):
    steps = [PoissonSampledDpEvent(RATE, GaussianDpEvent(nu)) for nu in noise]
    whole = map(SelfComposedDpEvent, steps, counts)
    return RdpAccountant().compose(ComposedDpEvent(list(whole))).get_epsilon(1e-5)


def with_noise(runs, chosen, nu):
    runs.loc[chosen, "noise_multiplier"] = nu
    runs.loc[chosen, "ledger"] = ledger(nu, STEPS, RATE)
    return runs


@pytest.mark.parametrize("planned", [True, False])
def test_account_grids_stages_form_one_search(planned) -> None:
    runs = rows()
    (found,) = account_grids(runs, *([plan()] if planned else []))
    assert found.name == "glyphs.online.k3.eps3.linear_scaling"
    assert (found.runs, found.stored, found.seeds) == (2 * N + 1, 2 * N + 1, 2)
    assert found.spent == pytest.approx(
        composed(noise_of(runs), [N * STEPS, N * STEPS, STEPS]), rel=1e-9
    )
    assert found.spent == pytest.approx(3, rel=1e-4)
    assert found.is_within_budget
    check_budgets([found])


def test_accounts_table_other_accountants_below_rdp() -> None:
    (row,) = accounts_table(account_grids(rows())).to_dict("records")
    assert 1.5 < row["pld"] < row["rdp"]
    assert 1.5 < row["prv"] < row["rdp"]


@pytest.mark.parametrize(
    "there", [["trial 1"], ["trial 2"], ["final"], ["trial 1", "trial 2"], ["trial 2", "final"]]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-3])
def test_account_grids_missing_stages_charged(there, delta) -> None:
    """Missing stages are charged so that the whole search costs its budget."""
    runs = pd.DataFrame(rows_of(plan(delta=delta))["runs"])
    (found,) = account_grids(runs[runs["stage"].isin(there)])
    assert found.runs == 2 * N + 1
    assert found.stored == sum(1 if part == "final" else N for part in there)
    assert 3 * (1 - 1e-4) < found.spent <= 3
    assert found.is_within_budget


@pytest.mark.parametrize("part", PARTS)
def test_account_grids_missing_runs_charged(part) -> None:
    runs = rows()
    (whole,) = account_grids(runs)
    fewer = runs.drop(runs.index[(runs["stage"] == part) & (runs["seed"] == 0)][:2])
    fewer = fewer.drop(fewer.index[(fewer["stage"] == part) & (fewer["seed"] == 1)])
    (found,) = account_grids(fewer)
    assert (found.runs, found.spent) == (whole.runs, pytest.approx(whole.spent, rel=1e-9))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_account_grids_lower_noise_exceeds_budget(part, seed) -> None:
    """One run with too little noise, in any stage, exceeds the budget."""
    runs = rows()
    chosen = runs.index[(runs["stage"] == part) & (runs["seed"] == seed)][1]
    (found,) = account_grids(with_noise(runs, chosen, 0.5))
    assert not found.is_within_budget
    with pytest.raises(OsoError, match=r"linear_scaling: its ledgers cost .* \(7 runs\)"):
        check_budgets([found])


def test_account_grids_final_stage_charged_once() -> None:
    runs = rows()
    (found,) = account_grids(runs)
    finals = runs[runs["stage"] == "final"]
    (one,) = account_grids(runs.drop(finals.index[finals["seed"] == 0][1:]))
    assert one.spent == found.spent
    counts = [N * STEPS, N * STEPS, N * STEPS]
    assert composed(noise_of(runs), counts) > 1.3 * found.spent  # what publishing all would cost


def test_account_grids_diverged_runs_charged_whole() -> None:
    runs = rows()
    (whole,) = account_grids(runs)
    for part in PARTS:
        chosen = runs.index[runs["stage"] == part]
        nu = runs.loc[chosen[0], "noise_multiplier"]
        runs.loc[chosen, "status"] = "diverged"
        runs.loc[chosen, "diverged_at"] = 2
        runs.loc[chosen, "ledger"] = ledger(nu, 2, RATE)
    (found,) = account_grids(runs)
    assert found.spent == pytest.approx(whole.spent, rel=1e-9)


def test_account_grids_separates_trial_fractions() -> None:
    other = pd.DataFrame(rows_of(plan_of_shares())["runs"])
    found = account_grids(pd.concat([rows(), other], ignore_index=True))
    assert [one.runs for one in found] == [2 * N + 1, 3 * N + 1]
    check_budgets(found)


@cache
def plan_of_shares():
    return make_plan(parse_config({**STUDY, "trial_fractions": [0.1, 0.2, 0.3]}, "x"))


@pytest.mark.parametrize(
    "other",
    [
        {"momentum": 0.5},
        {"datasets": {"glyphs": {**STUDY["datasets"]["glyphs"], "epsilons": [9]}}},
        {"datasets": {"glyphs": {**STUDY["datasets"]["glyphs"], "precision": "bfloat16"}}},
        {"epochs": 4},
        {"batch_size": 60},
        {"delta": 1e-6},
        {"methods": {"fixed_threshold_preset": {}}},
        {"methods": {"online": {"threshold_rate": 0.1}}},
        {"randomness": "system"},
        {"evaluate_every": 7},
        {"schedule": "linear"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_account_grids_separates_differing_searches(other) -> None:
    """Two searches that differ in one option have two accounts, each within its budget."""
    second = pd.DataFrame(rows_of(make_plan(parse_config({**STUDY, **other}, "x")))["runs"])
    found = account_grids(pd.concat([rows(), second], ignore_index=True))
    assert [(one.runs, one.stored, one.is_within_budget) for one in found] == [(7, 7, True)] * 2


def test_account_grids_extra_points_exceed_budget() -> None:
    other = make_plan(parse_config({**STUDY, "grid": {"log10_learning_rate": [-1, 1]}}, "x"))
    both = pd.concat([rows(), pd.DataFrame(rows_of(other)["runs"])], ignore_index=True)
    (found,) = account_grids(both.drop_duplicates("run_id"))
    assert not found.is_within_budget


def test_account_grids_points_across_seeds_counted() -> None:
    """Points of all seeds add up, although each seed alone has a grid of the planned size."""
    other = make_plan(parse_config({**STUDY, "grid": {"log10_learning_rate": [-1, 1]}}, "x"))
    more = pd.DataFrame(rows_of(other)["runs"])
    one = rows()
    both = pd.concat([one[one["seed"] == 0], more[more["seed"] == 1]], ignore_index=True)
    (found,) = account_grids(both)
    assert found.runs > 2 * N + 1
    assert not found.is_within_budget


@pytest.mark.parametrize(
    ("method", "grid"),
    [("fixed_threshold", {"log10_threshold": [-1, 1]}), ("fixed_quantile", {"quantiles": [0.2]})],
)
def test_account_grids_other_axes_counted(method, grid) -> None:
    """Thresholds and quantiles of all seeds add up, although each seed alone has few enough."""
    known = {"methods": {method: {}}, "values_per_axis": [2]}
    first = {"fixed_quantile": {"grid": {"quantiles": [0.7]}}}.get(method, {})
    one, more = (
        pd.DataFrame(rows_of(make_plan(parse_config({**STUDY, **known, **part}, "x")))["runs"])
        for part in (first, {"grid": grid})
    )
    size = one.loc[one["seed"] == 0, ["learning_rate", "threshold", "quantile"]].drop_duplicates()
    both = pd.concat([one[one["seed"] == 0], more[more["seed"] == 1]], ignore_index=True)
    (found,) = account_grids(both)
    assert found.runs > 2 * len(size) + 1
    assert not found.is_within_budget


def test_account_grids_altered_stage_rejected() -> None:
    """A trial's run that is relabelled as a final run no longer matches its run_id."""
    runs = rows()
    chosen = runs.index[runs["stage"] == "trial 1"][0]
    runs.loc[chosen, "stage"] = "final"
    with pytest.raises(OsoError, match="run_id: not the identity of its values"):
        account_grids(runs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stage": "trial 3"}, "stage: 'trial 3'; must be one of trial 1, trial 2, final"),
        ({"stage": None}, "stage: 'None'; must be one of"),
        ({"trial_fractions": "0.2, 0.1"}, "trial_fractions: 0.2, 0.1; must increase"),
        ({"trial_fractions": "0.1; 0.2"}, "trial_fractions: '0.1; 0.2'; must be numbers"),
        ({"trial_fractions": None}, "trial_fractions: None; must be two numbers or more"),
        ({"grid_runs": None}, "grid_runs is missing"),
        ({"model": None}, "model is missing"),
    ],
)
def test_find_runs_error_names_invalid_column(change, said) -> None:
    runs = rows()
    runs = runs.astype({name: object for name in change})
    for name, value in change.items():
        runs.loc[0, name] = value
    assert find_runs_error(runs).startswith(f"run {runs.loc[0, 'run_id']}: {said}")


def test_account_grids_uses_row_delta() -> None:
    (found,) = account_grids(pd.DataFrame(rows_of(plan(delta=1e-9))["runs"]))
    assert found.delta == 1e-9
    assert 3.0 * (1 - 1e-4) < found.spent <= 3.0


def test_account_grids_missing_momentum_charged() -> None:
    """Rows without a momentum, as of methods that have their own, are one account."""
    runs = rows().assign(momentum=None)
    runs["run_id"] = [make_run_id(row) for row in records(runs)]
    (found,) = account_grids(runs)
    assert (found.runs, found.stored, found.is_within_budget) == (7, 7, True)


def test_account_grids_large_grid_charged_whole() -> None:
    """Each trial is charged for its hundred points, of which one is stored."""
    whole = make_plan(parse_config({**STUDY, "values_per_axis": [100], "batch_size": 6000}, "x"))
    runs = pd.DataFrame(rows_of(whole)["runs"])
    (found,) = account_grids(runs[runs["seed"] == 0].groupby("stage").head(1), whole)
    assert (found.runs, found.stored) == (201, 3)
    assert 3 * (1 - 1e-4) < found.spent <= 3
