"""`schedule` and `averaging` are part of a run's identity, and only where they are asked for."""

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan, read_plan, write_plan
from oso_dp.training.job import make_task

STUDY = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
    "methods": {"online": {}, "auto_s": {}, "no_dp": {}},
    "values_per_axis": [2],
    "seeds": [0],
    "epochs": 1,
}
CHOICES = {"schedule": "linear", "averaging": 0.99}


def plan_of(**more):
    return make_plan(parse_config({**STUDY, **more}, "x"))


@pytest.fixture(scope="module")
def plain():
    return plan_of()


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_reaches_the_training_and_the_identity(name, plain, tmp_path) -> None:
    plan = plan_of(**{name: CHOICES[name]})
    assert not set(plan.run_ids()) & set(plain.run_ids())
    for cohort in plan.cohorts:
        assert getattr(make_task(cohort), name) == CHOICES[name]
        assert cohort.columns[name] == CHOICES[name]
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_the_defaults_leave_every_identity_and_row_as_it_was(plain) -> None:
    assert plan_of(schedule="constant", averaging=0) == plain
    for cohort in plain.cohorts:
        assert cohort.columns["schedule"] is cohort.columns["averaging"] is None
        task = make_task(cohort)
        assert (task.schedule, task.averaging) == (None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "cosine"}, "schedule: 'cosine'; must be 'constant' or 'linear'"),
        ({"averaging": 1}, "averaging: 1; must be less than 1"),
    ],
)
def test_other_values_get_one_line(change, message) -> None:
    with pytest.raises(OsoError, match=f"x: {message}"):
        parse_config({**STUDY, **change}, "x")
