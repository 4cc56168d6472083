"""The plan: every cohort priced for its whole grid, and read back as written."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from tests.study.conftest import BASE

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.methods import State
from oso_dp.methods.base import option
from oso_dp.methods.fixed_threshold import FixedThreshold
from oso_dp.methods.no_dp import NoDP
from oso_dp.methods.online import Online
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study import plan as plan_module
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.plan import make_plan, make_plan_with_noise, read_plan, write_plan

NOISE = {"online": {3: 1.498, 9: 0.815}, "fixed_threshold": {3: 4.008, 9: 1.677}}


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse_config({**BASE, "values_per_axis": [9]}, "x"))


def test_make_plan_noise_matches_grid_size(plan) -> None:
    for method, values in NOISE.items():
        for epsilon, expected in values.items():
            found = plan.cohort(f"mnist.{method}.k9.eps{epsilon}").noise_multiplier
            assert found == pytest.approx(expected, rel=0.01)
    assert plan.cohort("mnist.no_dp.k9.nonprivate").noise_multiplier == 0.0


def test_make_plan_grids_spend_within_budget(plan) -> None:
    for cohort in plan.cohorts:
        if not cohort.is_private:
            continue
        nu = cohort.noise_multiplier
        one = torch.ones(1)
        state = State(torch.zeros(1, 1), one, one, one, nu, cohort.batch_size)
        asked = cohort.make_method().queries(state)
        step = tuple(SumQuery(query.name, query.noise_multiplier) for query in asked)
        sampling = PoissonSampling(cohort.batch_size / cohort.examples)
        ledger = Ledger(sampling, [(step, cohort.steps)])
        spent = compute_epsilon([ledger] * cohort.grid_runs, cohort.delta)
        assert spent <= cohort.epsilon * (1 + 1e-6)
        assert spent > cohort.epsilon * 0.99


def test_read_plan_restores_written_plan(plan, tmp_path) -> None:
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("spoil", ["", "{", "{}", "[]", '{"version": 4}', "cohorts", "device"])
def test_read_plan_invalid_file_raises(plan, tmp_path, spoil) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    content.pop(spoil, None)
    path.write_text(json.dumps(content) if spoil in ("cohorts", "device") else spoil)
    with pytest.raises(OsoError, match=r"plan\.json: .*(not a plan|plan version|was edited)"):
        read_plan(path)


@pytest.mark.parametrize(("version", "found"), [(None, 1), (1, 1), (2, 2), (3, 3)])
def test_read_plan_other_version_raises(plan, tmp_path, version, found) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    content["version"] = version
    if version is None:
        del content["version"]
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=rf"plan\.json: plan version {found}; must be 4"):
        read_plan(path)


def test_read_plan_without_pydantic_succeeds(plan, tmp_path) -> None:
    write_plan(plan, tmp_path / "plan.json")
    code = f"""
import sys
sys.modules.update(dict.fromkeys(["pydantic", "yaml", "dp_accounting", "scipy"]))
from pathlib import Path
from oso_dp.study.plan import read_plan
plan = read_plan(Path({str(tmp_path / "plan.json")!r}))
print(len(plan.run_ids()), plan.cohorts[0].make_method().options)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    settings = plan.cohorts[0].make_method().options
    assert found.stdout.strip() == f"{len(plan.run_ids())} {settings}"


def test_make_plan_low_count_noise_raises(base) -> None:
    base.update(methods={"fixed_quantile": {"count_noise": 0.0001}}, values_per_axis=[5])
    with pytest.raises(OsoError, match=r"mnist\.fixed_quantile\.k5\.eps3: count_noise"):
        make_plan(parse_config(base, "x"))


def test_make_plan_no_learning_rate_raises(base, monkeypatch) -> None:
    monkeypatch.setattr(FixedThreshold, "search", ("threshold",))
    base.update(methods={"fixed_threshold": {}})
    with pytest.raises(OsoError, match=r"method 'fixed_threshold': has no learning_rate; set it"):
        make_plan(parse_config(base, "x"))


def test_read_plan_stored_plan_matches_config(repo) -> None:
    """results/plan.json, which the report's noise figure shows, belongs to config/paper.yaml."""
    plan, config = read_plan(repo / "results/plan.json"), load_config(repo / "config/paper.yaml")
    noise = {cohort.name: cohort.noise_multiplier for cohort in plan.cohorts}
    assert plan == make_plan_with_noise(config, noise)


# From independent check values: epsilon 3 and 9, mean 9 and 81.
STOPPED = {"online": {3: 1.034, 9: 0.659}, "fixed_threshold": {3: 1.147, 9: 0.708}}


@pytest.fixture(scope="module")
def stopping():
    study = {**BASE, "values_per_axis": [9], "search_accounting": "random_stopping"}
    return make_plan(parse_config(study, "x"))


def test_make_plan_random_stopping_matches_reference(stopping, tmp_path) -> None:
    for method, values in STOPPED.items():
        for epsilon, expected in values.items():
            found = stopping.cohort(
                f"mnist.{method}.k9.eps{epsilon}.random_stopping"
            ).noise_multiplier
            assert found == pytest.approx(expected, rel=0.0015)
    write_plan(stopping, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == stopping


CHANGES = {
    "epochs": 100,
    "delta": 1e-9,
    "batch_size": 1024,
    "epsilon": 9.5,
    "runs": 1,
    "points": [[0.1, 0.1, None]],
    "noise_multiplier": 1.0,
}


@pytest.mark.parametrize("key", CHANGES)
def test_read_plan_edited_cohort_raises(plan, tmp_path, key) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    assert content["cohorts"][0][key] != CHANGES[key]
    content["cohorts"][0][key] = CHANGES[key]
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: mnist\.online\.k9\.eps3 was edited"):
        read_plan(path)


def test_read_plan_other_run_ids_raise(plan, tmp_path, monkeypatch):
    write_plan(plan, tmp_path / "plan.json")
    monkeypatch.setattr("oso_dp.study.cohort.make_run_id", lambda row: f"{row['seed']}")
    with pytest.raises(OsoError, match=r"mnist\.online\.k9\.eps3 was planned by another version"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("method", [Online, FixedThreshold, NoDP])
def test_read_plan_new_method_option_raises(method, plan, tmp_path, monkeypatch) -> None:
    @dataclass(frozen=True)
    class More(method.Options):
        another: float = option(0.5)

    write_plan(plan, tmp_path / "plan.json")
    monkeypatch.setattr(method, "Options", More)
    said = rf"mnist\.{method.name}\..* was planned by another version .* trains it differently"
    with pytest.raises(OsoError, match=said):
        read_plan(tmp_path / "plan.json")


def edited(plan, path, change) -> None:
    """A plan that somebody changed who knows its digests."""
    write_plan(plan, path)
    content = json.loads(path.read_text())
    change(content)
    for entry in content["cohorts"]:
        entry.pop("digest")
        entry["digest"] = plan_module._digest(entry)
    head = {k: v for k, v in content.items() if k not in ("version", "cohorts", "digest")}
    content["digest"] = plan_module._digest_plan(head, content["cohorts"])
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["cohorts"][0].update(noise_multiplier=None), r"multiplier: 0\.0; must be"),
        (
            lambda c: c["cohorts"][-1].update(noise_multiplier=1.0),
            "must be null, since it has no privacy",
        ),
        (
            lambda c: c["cohorts"][0].update(epsilon=None),
            "epsilon: None; must be a number for online",
        ),
        (lambda c: c["cohorts"][0].update(steps=5), "trains it differently"),
        (lambda c: c["cohorts"][0].update(query_noise_multiplier=9.0), "trains it differently"),
        (
            lambda c: c["cohorts"][0]["method_options"].pop("threshold_rate"),
            "trains it differently",
        ),
        (lambda c: c.update(runs_per_job=0), "runs_per_job: 0; must be an integer >= 1"),
        (lambda c: c.update(device="xpu"), "device: 'xpu'; must be cpu or cuda"),
    ],
)
def test_read_plan_invalid_values_raise(plan, tmp_path, change, message) -> None:
    edited(plan, tmp_path / "plan.json", change)
    with pytest.raises(OsoError, match=message):
        read_plan(tmp_path / "plan.json")


def test_read_plan_missing_cohort_raises(plan, tmp_path) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    content = json.loads(path.read_text())
    del content["cohorts"][1]
    path.write_text(json.dumps(content))
    with pytest.raises(OsoError, match=r"plan\.json: was edited after"):
        read_plan(path)
