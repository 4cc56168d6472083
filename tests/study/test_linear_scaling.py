"""`search_accounting: linear_scaling`: a search is trials and one final run, each a cohort of "
"the study."""

from dataclasses import replace

import pytest

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting.linear_scaling import LinearScalingSearch
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import make_plan, read_plan, write_plan

STUDY = {
    "name": "test",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3, 9], "seconds_per_step": 1}},
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [3],
    "seeds": [0, 1],
    "batch_size": 120,
    "epochs": 2,
}
SCALED = {**STUDY, "search_accounting": "linear_scaling"}
PARTS = ["trial 1", "trial 2", "final"]
NAME = "glyphs.online.k3.eps3.linear_scaling"


def search(runs, shares=(0.1, 0.2)):
    return LinearScalingSearch(PoissonSampling(0.02), 100, runs, shares)


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_config(SCALED, "x"))


def test_make_plan_stages_become_cohorts(plan) -> None:
    names = [cohort.name for cohort in plan.cohorts]
    assert names[:3] == [f"{NAME}.trial_1", f"{NAME}.trial_2", f"{NAME}.final"]
    assert len(names) == len(set(names)) == 2 * 2 * 3
    for cohort in plan.cohorts:
        assert cohort.grid_runs == len(cohort.points) == (3 if cohort.method == "online" else 9)
        assert cohort.trial_fractions == (0.1, 0.2)
    ids = plan.run_ids()
    assert len(set(ids)) == len(ids) == 2 * 3 * (3 + 9) * 2


def test_make_plan_stage_noise_matches_fraction(plan) -> None:
    for method, size in (("online", 3), ("fixed_threshold", 9)):
        for epsilon in (3, 9):
            name = f"glyphs.{method}.k3.eps{epsilon}.linear_scaling"
            expected = search(size).noise_multipliers(epsilon, 1e-5)
            for part, nu in zip(PARTS, expected, strict=True):
                planned = plan.cohort(f"{name}.{part.replace(' ', '_')}").noise_multiplier
                assert nu <= planned < nu + 1.01e-5


def test_read_plan_stages_restored(plan, tmp_path) -> None:
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    content = (tmp_path / "plan.json").read_text()
    assert content.count('"stage": "final"') == 4


def test_run_id_depends_on_trial_fractions(plan) -> None:
    other = make_cohorts(parse_config({**SCALED, "trial_fractions": [0.1, 0.3]}, "x"))
    ids = {run.run_id for cohort in other for run in cohort.runs}
    assert not ids & set(plan.run_ids())
    composed = make_cohorts(parse_config(STUDY, "x"))
    assert not {run.run_id for cohort in composed for run in cohort.runs} & set(plan.run_ids())
    same = make_cohorts(parse_config({**SCALED, "trial_fractions": [0.1, 0.2]}, "x"))
    assert [run.run_id for cohort in same for run in cohort.runs] == plan.run_ids()


def test_check_budget_insufficient_stage_noise_raises(plan) -> None:
    check_budget(plan.cohorts)
    for part in PARTS:
        cohort = plan.cohort(f"{NAME}.{part.replace(' ', '_')}")
        check_budget([replace(cohort, noise_multiplier=1.01 * cohort.noise_multiplier)])
        budget = 3.0 * dict(zip(PARTS, (0.1, 0.2), strict=False)).get(part, 1.0)
        said = f"{cohort.name}: noise_multiplier: .* would cost .* above the budget of {budget:g};"
        with pytest.raises(OsoError, match=said):
            check_budget([replace(cohort, noise_multiplier=0.999 * cohort.noise_multiplier)])
    alone = Search(PoissonSampling(0.02), 100, 1).noise_multiplier(3.0, 1e-5)
    with pytest.raises(OsoError, match="would cost epsilon"):  # as if there had been no trials
        check_budget([replace(cohort, noise_multiplier=alone)])


REFUSED = {
    "one share": (
        {"trial_fractions": [0.1]},
        r"trial_fractions: 0\.1; must be two numbers or more",
    ),
    "of another selection": (
        {"search_accounting": "composition", "trial_fractions": [0.1, 0.2]},
        r"trial_fractions: 0\.1, 0\.2; only with search_accounting: linear_scaling",
    ),
    "no learning rate": (
        {"methods": {"online": {}, "adam_wosm": {}}},
        "methods.adam_wosm: does not search the learning rate; .* must be one of .*online",
    ),
    "no privacy": (
        {"methods": {"no_dp": {}}},
        "methods.no_dp: has no privacy; with search_accounting: linear_scaling",
    ),
    "some points": ({"grid_points": "paper_best"}, "grid_points: paper_best; must be all"),
    "a shape": (
        {"stopping_distribution": "poisson"},
        "stopping_distribution: poisson; only with search_accounting",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parse_config_unsupported_values_raise(case) -> None:
    change, message = REFUSED[case]
    with pytest.raises(OsoError, match=f"^x: {message}") as refused:
        parse_config({**SCALED, **change}, "x")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("trials", [2, 3, 4, 6])
def test_make_cohorts_trials_become_stages(trials: int) -> None:
    shares = [0.02 * (place + 1) for place in range(trials)]
    every = make_cohorts(parse_config({**SCALED, "trial_fractions": shares}, "x"))
    parts = [f"trial {place + 1}" for place in range(trials)] + ["final"]
    assert [cohort.stage for cohort in every] == parts * (len(every) // len(parts))
    assert {cohort.trial_fractions for cohort in every} == {tuple(shares)}
