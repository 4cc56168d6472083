"""A row tells the very run that it came from; what it was prepared and trained with is its own."""

from dataclasses import replace

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort, make_run
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import make_plan, read_plan, write_plan
from oso_dp.training.job import make_task

# A selection, a model, a schedule, an average, a part of a search: whatever rows may have.
CONFIGS = [
    *("paper", "demo", "paper/best_points", "paper/ag_news_subset"),
    *("ablations/controls", "ablations/one_epoch", "ablations/ag_news_25_words"),
    *("extensions/random_stopping", "extensions/linear_scaling", "extensions/untuned"),
    *("extensions/defaults_linear_decay", "extensions/defaults_averaged", "users", "users_cnn"),
]


def planned(cohort) -> PlannedCohort:
    noise = 1.5 if cohort.is_private else 0.0
    return PlannedCohort(**vars(cohort), noise_multiplier=noise)


def row_of(cohort, run) -> dict:
    point = ["run_id", "seed", "learning_rate", "threshold", "quantile"]
    noise = {"noise_multiplier": cohort.noise_multiplier if cohort.is_private else None}
    return cohort.columns | {name: getattr(run, name) for name in point} | noise


@pytest.mark.parametrize("name", CONFIGS)
def test_make_run_restores_planned_run(repo, name: str) -> None:
    every = [planned(cohort) for cohort in make_cohorts(load_config(repo / f"config/{name}.yaml"))]
    assert every
    for cohort in every:
        for run in cohort.runs[:: max(1, len(cohort.runs) // 3)]:
            again, repeated = make_run(row_of(cohort, run))
            assert repeated == run
            assert again == replace(cohort, runs=(run,))


@pytest.mark.parametrize(
    ("column", "value"),
    [("seed", 99), ("delta", 1e-6), ("momentum", 0.5), ("precision", "tf32"), ("run_id", "0" * 20)],
)
def test_make_run_mismatched_values_raise(repo, column: str, value) -> None:
    cohort = planned(make_cohorts(load_config(repo / "config/paper/best_points.yaml"))[0])
    row = row_of(cohort, cohort.runs[0]) | {column: value}
    with pytest.raises(OsoError, match="its values give another identity"):
        make_run(row)


@pytest.mark.parametrize(
    ("model", "oov_words", "words", "file"),
    [
        ("bag_of_words", "zeros", 15, "ag_news.npz"),
        ("bag_of_words_25", "zeros", 25, "ag_news-25.npz"),
        ("bag_of_words", "skipped", 15, "ag_news-skipped.npz"),
        ("bag_of_words_25", "skipped", 25, "ag_news-25-skipped.npz"),
    ],
)
def test_make_cohorts_text_preparation_matches_config(base, model, oov_words, words, file) -> None:
    section = {"model": model, "oov_words": oov_words}
    base["datasets"] = {"ag_news": {**section, "epsilons": [3], "seconds_per_step": 1}}
    for cohort in make_cohorts(parse_config(base, "x")):
        assert cohort.preparation == {"words": words, "oov_words": oov_words}
        assert cohort.data_file == file


@pytest.mark.parametrize(
    ("dataset", "default", "other"),
    [("ag_news", "complete", "subset"), ("ag_news_partial", "subset", "complete")],
)
def test_run_id_depends_on_vocabulary(base, dataset, default, other) -> None:
    def planned(**chosen):
        section = {"model": "bag_of_words", "epsilons": [3], "seconds_per_step": 1, **chosen}
        return make_cohorts(parse_config({**base, "datasets": {dataset: section}}, "x"))

    implied, named, changed = planned(), planned(vocabulary=default), planned(vocabulary=other)
    assert named == implied
    assert {cohort.data_file for cohort in implied} == {f"{dataset}.npz"}
    assert {cohort.data_file for cohort in changed} == {f"{dataset}-{other}.npz"}
    assert {cohort.preparation["vocabulary"] for cohort in changed} == {other}
    runs = [{run.run_id for cohort in study for run in cohort.runs} for study in (named, changed)]
    assert len(runs[0]) == len(runs[1])
    assert runs[0].isdisjoint(runs[1])
    for cohort in changed:
        row = {**cohort.columns, **vars(cohort.runs[0])}
        again, run = make_run({**row, "noise_multiplier": 2.0 if cohort.is_private else None})
        assert (again.vocabulary, run) == (other, cohort.runs[0])


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
def test_make_task_schedule_and_averaging_applied(name, plain, tmp_path) -> None:
    plan = plan_of(**{name: CHOICES[name]})
    assert not set(plan.run_ids()) & set(plain.run_ids())
    for cohort in plan.cohorts:
        assert getattr(make_task(cohort), name) == CHOICES[name]
        assert cohort.columns[name] == CHOICES[name]
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_make_plan_explicit_defaults_equal_implied(plain) -> None:
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
def test_parse_config_invalid_options_raise(change, message) -> None:
    with pytest.raises(OsoError, match=f"x: {message}"):
        parse_config({**STUDY, **change}, "x")
