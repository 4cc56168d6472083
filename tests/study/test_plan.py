"""The plan: every cohort priced for its whole grid, and read back as written."""

import json

import pytest
import torch
from tests.study.conftest import BASE

from oso_dp.accounting.accountants import epsilon_of
from oso_dp.errors import OsoError
from oso_dp.methods import State
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import make_plan, read_plan, write_plan

NOISE = {"online": {3: 1.498, 9: 0.815}, "fixed_threshold": {3: 4.008, 9: 1.677}}


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_config({**BASE, "granularities": [9]}, "x"))


def test_cohorts_are_priced_by_the_size_of_their_grid(plan) -> None:
    for method, values in NOISE.items():
        for epsilon, expected in values.items():
            found = plan.noise_multipliers[f"mnist.{method}.k9.eps{epsilon}"]
            assert found == pytest.approx(expected, rel=0.01)
    assert plan.noise_multipliers["mnist.no_dp.k9.nonprivate"] == 0.0


def test_every_grids_ledgers_stay_within_its_budget(plan) -> None:
    """From the queries that each method really asks, N runs of T steps."""
    for cohort in plan.cohorts:
        if not cohort.private:
            continue
        nu = plan.noise_multipliers[cohort.name]
        one = torch.ones(1)
        state = State(torch.zeros(1, 1), one, one, one, nu, cohort.batch_size)
        asked = plan.config.method(cohort.method).queries(state)
        step = tuple(SumQuery(query.name, query.noise_multiplier) for query in asked)
        sampling = PoissonSampling(cohort.batch_size / cohort.examples)
        ledger = Ledger(sampling, [(step, cohort.steps)])
        spent = epsilon_of([ledger] * cohort.grid_runs, cohort.delta)
        assert spent <= cohort.epsilon * (1 + 1e-6)
        assert spent > cohort.epsilon * 0.99


def test_a_plan_is_read_as_it_was_written(plan, tmp_path) -> None:
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("spoil", ["", "{", "{}", "[]", "cohorts", "config"])
def test_a_broken_plan_is_refused_by_name(plan, tmp_path, spoil) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    if spoil == "cohorts":
        content["cohorts"].pop()
    elif spoil == "config":
        content["config"]["delta"] = 2
    path.write_text(json.dumps(content) if spoil in content else spoil)
    with pytest.raises(OsoError, match=r"plan\.json"):
        read_plan(path)


def test_an_unknown_cohort_is_refused(plan) -> None:
    with pytest.raises(OsoError, match=r"cohort 'mnist\.x': not in the plan"):
        plan.cohort("mnist.x")


def test_a_count_that_eats_the_budget_is_refused_by_cohort(base) -> None:
    base.update(methods={"fixed_quantile": {"count_noise": 0.0001}}, granularities=[5])
    with pytest.raises(OsoError, match=r"mnist\.fixed_quantile\.k5\.eps3: query noise multiplier"):
        make_plan(parse_config(base, "x"))


def test_a_budget_that_no_noise_meets_is_refused(base) -> None:
    base["datasets"]["mnist"]["epsilons"] = [1e-9]
    with pytest.raises(OsoError, match="no noise multiplier between"):
        make_plan(parse_config(base, "x"))


def test_the_stored_plan_is_the_papers(repo) -> None:
    """results/plan.json, which the report's noise figure shows, belongs to config/paper.yaml."""
    assert read_plan(repo / "results/plan.json").config == load_config(repo / "config/paper.yaml")


# From independent check values: epsilon 3 and 9, mean 9 and 81.
STOPPED = {"online": {3: 1.034, 9: 0.659}, "fixed_threshold": {3: 1.147, 9: 0.708}}


@pytest.fixture(scope="module")
def stopping():
    study = {**BASE, "granularities": [9], "selection": "random_stopping"}
    return make_plan(parse_config(study, "x"))


def test_a_search_that_stops_at_random_is_priced_as_such(stopping, tmp_path) -> None:
    for method, values in STOPPED.items():
        for epsilon, expected in values.items():
            found = stopping.noise_multipliers[f"mnist.{method}.k9.eps{epsilon}.random_stopping"]
            assert found == pytest.approx(expected, rel=0.0015)
    write_plan(stopping, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == stopping


@pytest.mark.parametrize("key", ["selection", "stopping_shape"])
def test_noise_of_another_selection_is_refused(stopping, tmp_path, key) -> None:
    """A composition's runs with random stopping's noise would cost far more than their budget."""
    path = tmp_path / "plan.json"
    write_plan(stopping, path)
    content = json.loads(path.read_text())
    if key == "selection":
        content["config"]["selection"] = "composition"
        for entry in content["cohorts"]:
            entry["name"] = entry["name"].removesuffix(".random_stopping")
    else:
        content["config"]["stopping_shape"] = "poisson"
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: mnist\.online\.k9\.eps3.* was priced for"):
        read_plan(path)


@pytest.mark.parametrize("change", [{"epochs": 100}, {"delta": 1e-9}, {"batch_size": 1024}])
def test_a_configuration_changed_after_the_pricing_is_refused(plan, tmp_path, change) -> None:
    """The noise would be that of the old one, and the budget exceeded."""
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    content["config"].update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: mnist\.online\.k9\.eps3 was priced for"):
        read_plan(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mnist.online.k9.eps3", None),
        ("mnist.online.k9.eps3", 0.0),
        ("mnist.online.k9.eps3", -1.0),
        ("mnist.online.k9.eps3", "1.5"),
        ("mnist.no_dp.k9.nonprivate", 1.0),
    ],
)
def test_noise_that_was_tampered_with_is_refused(plan, tmp_path, name, value) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    next(entry for entry in content["cohorts"] if entry["name"] == name)["noise_multiplier"] = value
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=rf"plan\.json: {name}: noise_multiplier"):
        read_plan(path)
