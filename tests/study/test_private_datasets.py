"""Private data: all runs in one epsilon, beside whatever other data sets there are."""

from copy import deepcopy
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from tests.offered import Offer

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.analysis.study_statement import make_planned_statements
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.calibration import check_budget
from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.plan import Plan, make_plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.study.private_datasets import check_one_budget

STUDY: dict[str, Any] = {
    "name": "test",
    "datasets": {"patients": {"model": "own", "epsilons": [8], "seconds_per_step": 0.01}},
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [2],
    "seeds": [0, 1],
    "batch_size": 20,
    "epochs": 2,
    "randomness": "system",
}
RUNS = (2 + 4) * 2  # of Online's grid and FixedThreshold's, under two seeds
STEPS = 6


def planned(**changes: Any) -> Plan:
    return make_plan(parse_config({**deepcopy(STUDY), **changes}, "x"))


def test_make_plan_noise_covers_all_runs(offer) -> None:
    offer()
    plan = planned()
    assert sum(len(cohort.runs) for cohort in plan.cohorts) == RUNS
    search = Search(PoissonSampling(1 / 3), STEPS, RUNS)
    for cohort in plan.cohorts:
        assert 7.99 < search.epsilon(cohort.noise_multiplier, 1e-5) <= 8
        assert (cohort.steps, cohort.budget_runs, cohort.is_public) == (STEPS, RUNS, False)


def test_make_plan_ledgers_compose_to_epsilon(offer) -> None:
    offer()
    ledgers = [
        Ledger(
            cohort.sampling,
            [((SumQuery("clipped_gradient", cohort.noise_multiplier),), cohort.steps)],
        )
        for cohort in planned().cohorts
        for _ in cohort.runs
    ]
    assert 7.99 < compute_epsilon(ledgers, 1e-5) <= 8
    assert compute_epsilon([*ledgers, ledgers[0]], 1e-5) > 8


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({"seeds": [0, 1, 2]}, 18),
        ({"values_per_axis": [2, 3]}, 12 + (3 + 9) * 2),
        ({"methods": {"online": {}, "fixed_threshold": {}, "adam_wosm": {}}}, 16),
        ({"methods": {"online": {}}}, 4),
    ],
)
def test_make_plan_more_runs_increase_noise(offer, change, runs) -> None:
    offer()
    noise = {cohort.noise_multiplier for cohort in planned().cohorts}
    changed = planned(**change)
    assert {cohort.budget_runs for cohort in changed.cohorts} == {runs}
    more = {cohort.noise_multiplier for cohort in changed.cohorts}
    assert len(noise) == len(more) == 1
    assert (min(more) > min(noise)) == (runs > RUNS)


def test_make_plan_public_grids_priced_separately(offer) -> None:
    """On public data each grid has its own budget, and seeds cost nothing."""
    offer(public="True")
    section = {"model": "own", "epsilons": [3, 2], "seconds_per_step": 0.01}
    plan = planned(
        datasets={"patients": section}, methods={"online": {}, "no_dp": {}}, randomness="seeded"
    )
    one_grid = Search(PoissonSampling(1 / 3), STEPS, 2)
    for epsilon in (3, 2):
        nu = plan.cohort(f"patients.online.k2.eps{epsilon}").noise_multiplier
        assert 0.99 * epsilon < one_grid.epsilon(nu, 1e-5) <= epsilon
    assert {cohort.is_public for cohort in plan.cohorts} == {True}
    assert make_planned_statements(plan.cohorts) == []
    assert "patients.no_dp.k2.nonprivate" in {cohort.name for cohort in plan.cohorts}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": {"online": {}, "no_dp": {}}}, "methods.no_dp: has no privacy; leave it out"),
        ({"randomness": "seeded"}, "randomness: seeded; must be system"),
        (
            {"search_accounting": "random_stopping"},
            "search_accounting: random_stopping; must be composition",
        ),
        ({"epsilons": [3, 8]}, r"patients.epsilons: \[3.0, 8.0\]; must be one value"),
        ({"grid_points": "paper_best"}, "patients; the paper reports no best point"),
        ({"model": "small_cnn"}, "datasets.patients: unknown; .*with model: own, .*: patients"),
    ],
)
def test_parse_config_unsupported_protected_values_raise(offer, change, message) -> None:
    offer()
    values = deepcopy(STUDY)
    section = values["datasets"]["patients"]
    for key, value in change.items():
        (section if key in section else values)[key] = value
    with pytest.raises(OsoError, match=message) as raised:
        make_plan(parse_config(values, "x"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("declared", [{"version": "'2'"}, {"public": "True"}, {"examples": "59"}])
def test_run_id_depends_on_declaration(offer, declared) -> None:
    offer()
    before = set(planned().run_ids())
    offer(**declared)
    runs = {run.run_id for cohort in make_cohorts(parse_config(STUDY, "x")) for run in cohort.runs}
    assert len(runs) == RUNS
    assert before.isdisjoint(runs)


def test_read_plan_without_dataset_package_succeeds(offer, tmp_path) -> None:
    offer()
    plan = planned()
    write_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    for fact in ('"data_version": "1"', '"public": false', '"examples": 60', '"budget_runs": 12'):
        assert fact in text
    offer("others")
    assert read_plan(tmp_path / "plan.json") == plan


def test_check_one_budget_extra_runs_raise(offer) -> None:
    offer()
    plan = planned()
    more = [one.with_runs(one.points, [0, 1, 2]) for one in plan.cohorts]
    with pytest.raises(OsoError, match="18 runs on patients, but its epsilon covers 12"):
        replace(plan, cohorts=tuple(more))
    check_one_budget([*plan.cohorts, *planned().cohorts])  # the same runs, trained once
    with pytest.raises(OsoError, match="24 runs on patients"):
        check_one_budget([*plan.cohorts, *planned(epochs=3).cohorts])


def test_check_one_budget_unprotected_cohort_raises(offer) -> None:
    offer()
    plan = planned()
    seeded = replace(plan.cohorts[0], randomness="seeded")
    free = replace(plan.cohorts[0], method="no_dp", epsilon=None, delta=None, noise_multiplier=0.0)
    for cohort in (seeded, free):
        with pytest.raises(OsoError, match="patients is not declared public"):
            replace(plan, cohorts=(cohort,))


def test_check_budget_single_grid_noise_raises(offer) -> None:
    offer()
    cohort = planned().cohorts[0]
    check_budget([cohort])
    less = replace(cohort, noise_multiplier=0.8 * cohort.noise_multiplier)
    assert (
        Search(PoissonSampling(1 / 3), STEPS, cohort.grid_runs).epsilon(less.noise_multiplier, 1e-5)
        < 8
    )
    with pytest.raises(OsoError, match=r"12 runs\), above the budget of 8"):
        check_budget([less])


def test_make_planned_statements_match_plan(offer) -> None:
    offer()
    (statement,) = make_planned_statements(planned().cohorts)
    assert 7.99 < statement.epsilon <= 8
    assert statement.methods == {"online": 4, "fixed_threshold": 8}
    text = str(statement)
    for part in ("patients, version 1", "budget is epsilon 8", "12 runs", "of 60 examples"):
        assert part in text
    assert (statement.steps, statement.sampling_rate) == (STEPS, pytest.approx(1 / 3))
    assert f"after each of {STEPS} steps of every run" in text
    assert "Not protected: the test data" in text
    assert "Not included: what was chosen by looking at the training data before" in text
    assert "any other study, training or data set with these examples" in text


@pytest.mark.parametrize(("epsilon", "delta"), [(2.5, 1.4e-5), (0.75, 2.6e-7)])
def test_make_planned_statements_print_exact_budget(offer, epsilon, delta) -> None:
    offer()
    section = {**STUDY["datasets"]["patients"], "epsilons": [epsilon]}
    plan = planned(datasets={"patients": section}, delta=delta)
    (statement,) = make_planned_statements(plan.cohorts)
    text = str(statement)
    assert f"the total budget is epsilon {epsilon:g}." in text
    assert f", {delta:g})-differential privacy of all" in text
    said = float(text.split("noise multiplier ")[1].split()[0].rstrip("."))
    assert said <= statement.noise_multiplier < said + 2e-4


@pytest.mark.parametrize("place", [0, 1, 2])
def test_check_one_budget_beside_public_raises(offer, place: int) -> None:
    offer()
    protected = planned().cohorts
    public = {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 0.01}}
    config = parse_config({**deepcopy(STUDY), "datasets": public}, "x")
    free = make_plan_with_noise(config, {c.name: 9.0 for c in make_cohorts(config)}).cohorts[0]
    seeded = [replace(one, randomness="seeded") for one in protected]
    more = [one.with_runs(one.points, [0, 1, 2]) for one in protected]
    for wrong, message in ((seeded, "is not declared public"), (more, "18 runs on patients")):
        every = [*wrong[:place], free, *wrong[place:]]
        with pytest.raises(OsoError, match=message):
            check_one_budget(every)


@pytest.mark.parametrize("change", [{"seeds": [0, 1, 2]}, {"values_per_axis": [2, 3]}])
def test_run_id_depends_on_budget_runs(offer, change) -> None:
    offer()
    before, changed = (
        make_cohorts(parse_config({**deepcopy(STUDY), **more}, "x")) for more in ({}, change)
    )
    points = {(run.point, run.seed) for cohort in before for run in cohort.runs}
    same = [run for cohort in changed for run in cohort.runs if (run.point, run.seed) in points]
    assert len(same) >= RUNS
    ids = {run.run_id for cohort in before for run in cohort.runs}
    assert ids.isdisjoint(run.run_id for cohort in changed for run in cohort.runs)


GRIDS: dict[str, Any] = {
    "name": "test",
    "methods": {"online": {}, "fixed_threshold": {}},
    "values_per_axis": [2],
    "seeds": [0, 1],
}
ANY = {"epsilons": [3], "seconds_per_step": 1}
SECTIONS = {
    "mnist": {"model": "cnn", "precision": "bfloat16", **ANY},
    "fashion_mnist": {"model": "autoencoder", "loss": "sum", **ANY},
    "ag_news": {"model": "bag_of_words_25", "oov_words": "skipped", **ANY},
}
OWN = {"model": "own", **ANY}
USUAL = {"loss": "mean", "oov_words": "zeros", "precision": "float32"}


def study(sections: dict[str, Any], **more: Any) -> dict[str, Any]:
    return deepcopy({**GRIDS, "datasets": sections, **more})


@pytest.mark.parametrize("order", [*permutations(SECTIONS)])
def test_make_cohorts_keep_dataset_options(order) -> None:
    sections = {name: SECTIONS[name] for name in order}
    every = make_cohorts(parse_config(study(sections), "x"))
    assert [cohort.dataset for cohort in every] == [name for name in order for _ in "ab"]
    for cohort in every:
        asked = {**USUAL, **SECTIONS[cohort.dataset]}
        for name in ("model", *USUAL):
            assert getattr(cohort, name) == asked[name], (cohort.dataset, name)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_parse_config_protected_beside_public_raises(offer: Offer, place: int) -> None:
    offer()
    sections = [("mnist", SECTIONS["mnist"]), ("ag_news", SECTIONS["ag_news"])]
    sections.insert(place, ("patients", OWN))
    asked = study(dict(sections), batch_size=20)
    parse_config({**asked, "randomness": "system"}, "x")
    with pytest.raises(
        OsoError, match=r"randomness: seeded; .* datasets\.patients is not declared"
    ):
        parse_config({**asked, "randomness": "seeded"}, "x")
    with pytest.raises(
        OsoError, match=r"search_accounting: single; .* datasets\.patients is not declared"
    ):
        parse_config({**asked, "randomness": "system", "search_accounting": "single"}, "x")


@pytest.mark.parametrize("order", [1, -1])
def test_check_one_budget_separates_protected_datasets(offer: Offer, order: int) -> None:
    (known,) = offer().glob("*.dist-info/entry_points.txt")
    text = known.read_text()
    known.write_text(text + text.splitlines()[1].replace("patients", "visitors") + "\n")
    sections = {"patients": OWN, "visitors": OWN}
    asked = study(sections, batch_size=20, randomness="system")
    every = make_cohorts(parse_config(asked, "x"))
    assert {(cohort.dataset, cohort.budget_runs) for cohort in every} == {
        ("patients", 12),
        ("visitors", 12),
    }
    whole = [one for one in every if one.dataset == "patients"]
    part = [one for one in every if one.dataset == "visitors"][:1]
    check_one_budget([*whole, *part][::order])
    more = [one.with_runs(one.points, [0, 1, 2]) for one in whole]
    with pytest.raises(OsoError, match="18 runs on patients, but its epsilon covers 12"):
        check_one_budget([*more, *part][::order])
