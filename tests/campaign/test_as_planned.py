"""A campaign trains what its plans say, of each plan and of each of its cohorts."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from tests.campaign.conftest import STUDY
from tests.planned_rows import score_rows

from oso_dp.campaign import campaign as module
from oso_dp.results.read import read_table
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.config import parse_config
from oso_dp.study.expand import cohorts
from oso_dp.study.plan import plan_of, read_plan, write_plan
from oso_dp.training.job import Rows, task_of

# Studies whose cohorts have the same names; each differs from the first in another choice.
STUDIES = {
    "usual": {},
    "constants": {
        "methods": {
            "online": {"threshold_rate": 0.3, "initial_threshold": 0.7},
            "fixed_threshold": {},
            "no_dp": {"optimizer": "sgd"},
        }
    },
    "evaluations": {"evaluate_every": 5},
    "momentum": {"momentum": 0.25},
    "last layer": {"last_layer_nonlinearity": True},
    "entropy": {"randomness": "system"},
    "longer": {"epochs": 2},
    "smaller batches": {"batch_size": 300},
    "seeds": {"seeds": [5]},
    "precision": {
        "datasets": {
            "glyphs": {
                "model": "small_cnn",
                "epsilons": [3],
                "seconds_per_step": 0.005,
                "precision": "bfloat16",
            }
        }
    },
}


@dataclass
class Recorder:
    """Trains nothing, and keeps what it was asked for."""

    asked: list[tuple[PlannedCohort, list[Run]]] = field(default_factory=list)
    status: Callable[[Run], str] = lambda run: "finished"

    def run_job(
        self, cohort, runs, arrays, folder, device, runs_at_once, on_progress, clock
    ) -> Rows:
        self.asked.append((cohort, list(runs)))
        on_progress(0, cohort.steps)
        ended = [{"run_id": run.run_id, "status": self.status(run)} for run in runs]
        scores = [row for run in runs for row in score_rows(run, [cohort.steps])]
        return Rows(ended, scores)


@pytest.fixture
def recorder(monkeypatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(module, "run_job", made.run_job)
    return made


@pytest.fixture
def planned(tmp_path) -> Callable[[str], Path]:
    """A study's plan, in which each cohort has a noise of its own."""

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        config = parse_config({**STUDY, **STUDIES[name]}, name)
        every = cohorts(config)
        place = list(STUDIES).index(name)
        # To the last of a plan's five decimals.
        noise = {c.name: 2.00001 + place + i / 8 for i, c in enumerate(every)}
        write_plan(plan_of(config, noise), path)
        return path

    return write


def described(task) -> dict[str, Any]:
    """A task as values that can be compared; where it runs is not the plan's business."""
    found = {each.name: getattr(task, each.name) for each in fields(task) if each.name != "device"}
    method = found.pop("method")
    return {**found, "method": type(method), "own": method.settings, "momentum": method.momentum}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("second", [name for name in STUDIES if name != "usual"])
def test_every_run_is_trained_as_its_own_plan_says(
    second, order, planned, recorder, call, tmp_path
) -> None:
    paths = [planned("usual"), planned(second)][::order]
    status, lines, errors = call(
        "--minutes", 1, "--results", tmp_path / "out", "--runs-at-once", 3, "--plan", *paths
    )
    assert (status, errors) == (0, [])
    assert lines[-2].endswith(" 0 left, about 0.0 hours at the measured speed")
    found = {}
    for cohort, runs in recorder.asked:
        for run in runs:
            assert run.run_id not in found, "trained twice"
            found[run.run_id] = described(task_of(cohort)), run
    expected: dict[str, Any] = {}
    for path in paths:
        plan = read_plan(path)
        for cohort in plan.cohorts:
            task = described(task_of(cohort))
            for run in cohort.runs:
                expected.setdefault(run.run_id, (task, run))
    assert found == expected


def test_the_studies_of_this_test_are_different(planned) -> None:
    plans = [read_plan(planned(name)) for name in STUDIES]
    assert len({tuple(sorted(plan.run_ids())) for plan in plans}) == len(STUDIES)
    names = {tuple(cohort.name for cohort in plan.cohorts) for plan in plans}
    assert len(names) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_the_loss_over_pixels_is_each_plans_own(
    order, recorder, call, tmp_path, monkeypatch
) -> None:
    expected = {}
    for loss in ("mean", "sum")[::order]:
        section = {"model": "autoencoder", "epsilons": [3], "seconds_per_step": 1, "loss": loss}
        config = parse_config({**STUDY, "datasets": {"fashion_mnist": section}}, loss)
        plan = plan_of(config, {cohort.name: 1.0 for cohort in cohorts(config)})
        write_plan(plan, tmp_path / f"{loss}.json")
        expected |= dict.fromkeys(plan.run_ids(), loss)
    (tmp_path / "fashion_mnist.npz").touch()
    monkeypatch.setattr("oso_dp.campaign.data_files.DataFiles.load", lambda self, name: None)
    paths = [tmp_path / f"{loss}.json" for loss in ("mean", "sum")[::order]]
    options = ["--minutes", 1, "--results", tmp_path / "out", "--data", tmp_path]
    assert call(*options, "--plan", *paths)[0] == 0
    trained = {run.run_id: task_of(cohort).loss for cohort, runs in recorder.asked for run in runs}
    assert trained == expected


def test_the_best_of_every_plan_go_first(tmp_path, recorder, call, monkeypatch) -> None:
    """Runs of the paper's tables, also where the last plan holds them."""
    section = {"model": "cnn", "epsilons": [3, 9], "seconds_per_step": 0.1}
    mnist = {**STUDY, "datasets": {"mnist": section}, "granularities": [9], "batch_size": 512}
    paths = []
    for name, epochs in (("other", 1), ("table", 10)):
        study = {**mnist, "name": name, "epochs": epochs, "methods": {"online": {}}}
        if name == "other":  # of a grid that the paper's points are not in
            study["grid"] = {"log10_learning_rate": [2, 3]}
        config = parse_config(study, name)
        noise = {cohort.name: 1.6 for cohort in cohorts(config)}
        write_plan(plan_of(config, noise), tmp_path / f"{name}.json")
        paths.append(tmp_path / f"{name}.json")
    (tmp_path / "mnist.npz").touch()
    monkeypatch.setattr("oso_dp.campaign.data_files.DataFiles.load", lambda self, name: None)
    options = ["--minutes", 1, "--results", tmp_path / "out", "--data", tmp_path]
    status, _, errors = call(*options, "--plan", *paths)
    assert (status, errors) == (0, [])
    best = cohorts(parse_config({**mnist, "name": "table", "epochs": 10, "select": "paper_best",
                                 "methods": {"online": {}}}, "x"))  # fmt: skip
    wanted = {run.run_id for cohort in best for run in cohort.runs}
    assert len(wanted) == 4  # a point for each epsilon, with two seeds
    order = [run.run_id for _, runs in recorder.asked for run in runs]
    assert set(order[: len(wanted)]) == wanted


@pytest.mark.parametrize("names", [("entropy", "usual"), ("usual", "entropy")])
def test_what_the_system_s_entropy_needs_is_looked_for(
    names, planned, recorder, call, tmp_path, monkeypatch
) -> None:
    """Not after an hour of the other plan's runs."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    paths = [planned(name) for name in names]
    status, _, errors = call("--minutes", 1, "--results", tmp_path / "out", "--plan", *paths)
    assert (status, recorder.asked) == (2, [])
    assert "randomness system: needs scipy" in errors[0]


def parts_of(out: Path) -> list[Path]:
    return list(out.glob("[!.]*"))


def test_runs_that_diverged_are_kept_and_not_trained_again(
    planned, recorder, call, tmp_path
) -> None:
    """They are results, with what they had reached: without, a report has the lucky ones only."""
    recorder.status = lambda run: "diverged" if run.seed else "finished"
    path = planned("usual")
    out = tmp_path / "out"
    arguments = ["--minutes", 1, "--results", out, "--runs-at-once", 3, "--plan", path]
    assert call(*arguments)[0] == 0
    stored = {
        row["run_id"]: row["status"]
        for part in parts_of(out)
        for row in read_table(part / "runs.parquet", "runs").to_dict("records")
    }
    runs = {run.run_id: run for cohort in read_plan(path).cohorts for run in cohort.runs}
    assert stored == {name: recorder.status(run) for name, run in runs.items()}
    scores = [read_table(part / "evaluations.parquet", "evaluations") for part in parts_of(out)]
    assert {name for table in scores for name in table["run_id"]} == set(runs)
    before = len(recorder.asked)
    assert call(*arguments)[0] == 0
    assert len(recorder.asked) == before
