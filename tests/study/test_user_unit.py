"""Studies of users: their plan, their rows, their accounts, and what does not fit."""

from copy import deepcopy

import pandas as pd
import pytest
from tests.planned_rows import rows_of

from oso_dp.analysis.accounts import account_grids
from oso_dp.errors import OsoError
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.promise import USER
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import find_runs_error
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import Plan, make_plan, read_plan, write_plan

STUDY = {
    "name": "tiny_users",
    "datasets": {
        "mnist_writers": {
            "model": "softmax_regression",
            "unit": "user",
            "local": {"batch_size": 10, "learning_rate": 0.1},
            "epsilons": [8],
            "seconds_per_step": 0.1,
        }
    },
    "methods": {"online": {}, "no_dp": {}},
    "values_per_axis": [2],
    "seeds": [0],
    "batch_size": 54,
    "delta": 1e-3,
}


def study(**section) -> dict:
    made = deepcopy(STUDY)
    made["datasets"]["mnist_writers"] |= section
    return made


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(parse_config(STUDY, "x"))


def table(plan: Plan) -> pd.DataFrame:
    return pd.DataFrame(rows_of(plan)["runs"])


def test_make_plan_samples_users(plan, tmp_path) -> None:
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    for cohort in plan.cohorts:
        assert cohort.sampling == PoissonSampling(54 / 539, USER)
        assert cohort.steps == 100
        assert cohort.local_training == LocalTraining(1, 10, 0.1)
    check_budget(plan.cohorts)


def test_account_grids_users_spend_within_budget(plan) -> None:
    (account,) = account_grids(table(plan), plan)
    assert 7.9 < account.spent <= 8.0
    assert account.ledgers[0].sampling.unit == USER


def test_run_id_depends_on_local_training() -> None:
    sections = [
        {},
        {"local": {"batch_size": 10, "learning_rate": 0.2}},
        {"local": {"batch_size": "all"}},
        {"local": {"rows_per_user": 5}},
        {"unit": "example", "local": None},
    ]
    ids = [
        run.run_id
        for section in sections
        for cohort in make_cohorts(parse_config(study(**section), "x"))
        for run in cohort.runs
    ]
    assert len(ids) == len({*ids}) == 4 * len(sections)


def test_run_id_fedsgd_equals_explicit_values() -> None:
    values = {"epochs": 1, "batch_size": "all", "learning_rate": 1.0, "rows_per_user": None}
    named, given = (
        [run.run_id for cohort in make_cohorts(parse_config(study(local=local), "x"))
         for run in cohort.runs]
        for local in (None, values)
    )  # fmt: skip
    assert named == given


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "users"}, "unit: 'users'; must be 'example' or 'user'"),
        ({"unit": "example"}, "datasets.mnist_writers.local: only with unit: user"),
        ({"local": {"epoch": 1}}, "local.epoch: unknown key"),
        ({"local": {"epochs": 0}}, "local.epochs: 0; must be greater than or equal to 1"),
        ({"local": {"learning_rate": 0}}, "local.learning_rate: 0; must be greater than 0"),
        ({"local": {"batch_size": 0}}, "batch_size"),
        ({"precision": "bfloat16"}, "precision: bfloat16; must be float32 with unit: user"),
    ],
)
def test_parse_config_invalid_user_options_raise(changes, message) -> None:
    with pytest.raises(OsoError, match=message) as error:
        parse_config(study(**changes), "x")
    assert "\n" not in str(error.value)


def test_parse_config_too_few_users_raises() -> None:
    made = study()
    made["datasets"] = {"mnist": made["datasets"]["mnist_writers"]}
    with pytest.raises(OsoError, match=r"mnist\.unit: user; mnist does not say whose the examples"):
        parse_config(made, "x")
    with pytest.raises(OsoError, match="batch_size: 540; must be <= 539, the number of training u"):
        parse_config(study() | {"batch_size": 540}, "x")


def test_find_runs_error_unit_mismatch_found(plan) -> None:
    rows = table(plan)
    assert find_runs_error(rows) is None
    one = rows.assign(unit=None, local=None)
    assert "its ledger protects one user, the row one example" in find_runs_error(one)
    assert "unit and local must both be null" in find_runs_error(rows.assign(local=None))
