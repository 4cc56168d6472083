"""A job: rows for each of its runs, also after a kill."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.schema import EVALUATIONS, RUNS
from oso_dp.study.cohort import PlannedCohort, make_run
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise
from oso_dp.training import job
from oso_dp.training.evaluate import Outcome
from oso_dp.training.job import ResultRows, make_task, run_job


def study(noise: float = 1.5, **other) -> PlannedCohort:
    base = {
        "name": "test",
        "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 1}},
        "methods": {"online": {}},
        "values_per_axis": [2],
        "seeds": [0, 1],
        "batch_size": 600,
        "epochs": 1,
        "evaluate_every": 5,
    }
    config = parse_config({**base, **other}, "test")
    return make_plan_with_noise(config, defaultdict(lambda: noise)).cohorts[0]


class KilledError(Exception):
    pass


def noted(steps: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda *at: steps.append(at)


def without_time(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "wall_seconds"} for row in rows]


def run(arrays: Arrays, folder: Path, runs: int = 4, **how: Any) -> ResultRows:
    """The study's first so many runs."""
    cohort = study()
    return run_job(cohort, cohort.runs[:runs], arrays, folder, **{"parallel_runs": 2, **how})


@pytest.fixture(scope="module")
def whole(glyphs, tmp_path_factory) -> ResultRows:
    """Of a job that nothing interrupts."""
    return run(glyphs, tmp_path_factory.mktemp("whole"))


def kill_at(*at: int) -> Callable[[int, int], None]:
    def kill(done: int, step: int) -> None:
        if (done, step) == at:
            raise KilledError

    return kill


def test_run_job_rows_match_schema(whole) -> None:
    assert [row["run_id"] for row in whole.runs] == [run.run_id for run in study().runs]
    assert all(row.keys() == set(RUNS.names) for row in whole.runs)
    assert all(row.keys() == set(EVALUATIONS.names) for row in whole.evaluations)
    assert all(row["wall_seconds"] > 0 for row in whole.runs)
    assert whole.runs[0]["query_noise_multiplier"] == pytest.approx(7.124 * 1.5)


@pytest.mark.parametrize("together", [1, 4])
def test_run_job_parallel_runs_keep_results(together, whole, glyphs, tmp_path) -> None:
    other = run(glyphs, tmp_path, parallel_runs=together)
    assert without_time(other.runs) == without_time(whole.runs)
    assert other.evaluations == whole.evaluations


@pytest.mark.parametrize("killed_at", [(0, 7), (2, 1), (2, 6)])
def test_run_job_resumed_matches_uninterrupted(killed_at, whole, glyphs, tmp_path) -> None:
    with pytest.raises(KilledError):
        run(glyphs, tmp_path, on_progress=kill_at(*killed_at))
    seen: list[tuple[int, int]] = []
    resumed = run(glyphs, tmp_path, on_progress=noted(seen))
    assert min(seen) > (killed_at[0], 0)
    assert seen[0] == (killed_at[0], killed_at[1] // 5 * 5 + 1)
    assert without_time(resumed.runs) == without_time(whole.runs)
    assert resumed.evaluations == whole.evaluations


def test_run_job_resumes_with_other_parallelism(whole, glyphs, tmp_path) -> None:
    """Unfinished runs start again with the same noise, so all rows stay the same."""
    with pytest.raises(KilledError):
        run(glyphs, tmp_path, parallel_runs=1, on_progress=kill_at(1, 6))
    resumed = run(glyphs, tmp_path)
    assert without_time(resumed.runs) == without_time(whole.runs)
    assert resumed.evaluations == whole.evaluations


def test_run_job_other_code_restarts(glyphs, tmp_path, monkeypatch) -> None:
    run(glyphs, tmp_path, runs=1)
    monkeypatch.setattr("oso_dp.training.job.code_hash", lambda: "another")
    steps: list[tuple[int, int]] = []
    run(glyphs, tmp_path, runs=1, on_progress=noted(steps))
    assert steps[0] == (0, 1)
    assert not list(tmp_path.glob("*damaged*"))  # it is another code's, and whole


@pytest.mark.parametrize("more", [1, 200])
def test_run_job_extra_examples_raise(more, glyphs, tmp_path) -> None:
    """Extra examples would be trained at another sampling rate than the row states."""
    larger = Arrays(
        np.concatenate([glyphs.train_inputs, glyphs.train_inputs[:more]]),
        np.concatenate([glyphs.train_targets, glyphs.train_targets[:more]]),
        glyphs.test_inputs,
        glyphs.test_targets,
    )
    cohort = study()
    with pytest.raises(OsoError, match=f"data have {6000 + more} training examples; must be 6000"):
        run_job(cohort, cohort.runs, larger, tmp_path)


def test_run_job_system_randomness_differs(glyphs, tmp_path) -> None:
    cohort = study(randomness="system")
    seeded = study()
    assert not {run.run_id for run in cohort.runs} & {run.run_id for run in seeded.runs}
    first, second = (
        run_job(cohort, cohort.runs[:1], glyphs, tmp_path / name, parallel_runs=2) for name in "ab"
    )
    assert first.runs[0]["ledger"] == second.runs[0]["ledger"]
    losses = [[row["loss"] for row in rows.evaluations] for rows in (first, second)]
    assert not set(losses[0]) & set(losses[1])


CHOICES: dict[str, dict[str, Any]] = {
    "the usual": {},
    "no momentum": {"momentum": 0.0},
    "another momentum": {"momentum": 0.35},
    "a small delta": {"delta": 1e-9},
    "a large delta": {"delta": 1e-3},
    "another length": {"epochs": 7, "batch_size": 431, "evaluate_every": 11},
    "other seeds": {"seeds": [7, 2**62], "values_per_axis": [3]},
    "other rounding": {
        "datasets": {
            "glyphs": {
                **{"model": "small_cnn", "epsilons": [2.5], "seconds_per_step": 1},
                "precision": "bfloat16",
            }
        }
    },
    "a method's constants": {"methods": {"online": {"initial_threshold": 0.3}}},
    "a count": {"methods": {"fixed_quantile": {"count_noise": 0.1}}, "batch_size": 431},
    "random stopping": {
        "search_accounting": "random_stopping",
        "stopping_distribution": "geometric",
    },
    "a part of a search": {"search_accounting": "linear_scaling", "trial_fractions": [0.05, 0.3]},
    "more": {"schedule": "linear", "averaging": 0.97, "final_activation": True},
    "no privacy": {"methods": {"no_dp": {}}},
}


@pytest.fixture
def made(arrays, tmp_path, monkeypatch):
    """A study's first cohort, and rows of its runs; nothing is trained for them."""
    monkeypatch.setattr(job, "train", lambda task, runs, *_, **how: [ended(run) for run in runs])

    def make(**choices: Any):
        cohort = replace(study(**choices), examples=len(arrays.train_inputs))
        cohort = cohort.with_runs(cohort.points, cohort.seeds)
        return cohort, run_job(cohort, cohort.runs, arrays, tmp_path, parallel_runs=3).runs

    return make


def ended(run) -> Outcome:
    ledger = Ledger(PoissonSampling(0.1), [((SumQuery("clipped_gradient", 1.0),), 1)])
    return Outcome(run.run_id, "finished", ledger=ledger.to_json())


@pytest.mark.parametrize("name", CHOICES)
def test_make_run_restores_run_from_row(made, name: str) -> None:
    cohort, rows = made(**CHOICES[name])
    assert [row["run_id"] for row in rows] == [run.run_id for run in cohort.runs]
    for run, row in zip(cohort.runs, rows, strict=True):
        again, same = make_run(row)
        assert same == run
        assert again == replace(cohort, runs=(run,))


@pytest.mark.parametrize("name", CHOICES)
def test_run_job_rows_match_cohort(made, name: str) -> None:
    cohort, rows = made(**CHOICES[name])
    for row in rows:
        assert row["steps"] == cohort.steps
        assert row["noise_multiplier"] == (cohort.noise_multiplier or None)
        assert row["query_noise_multiplier"] == cohort.query_noise_multiplier
        assert row["sampling"] == "poisson"


@pytest.mark.parametrize("name", CHOICES)
def test_make_task_matches_cohort_options(name: str) -> None:
    cohort = study(**CHOICES[name])
    task = make_task(cohort)
    for fact in (
        *("model", "noise_multiplier", "batch_size", "steps", "evaluate_every", "precision"),
        *("final_activation", "loss", "randomness", "schedule", "averaging"),
    ):
        assert getattr(task, fact) == getattr(cohort, fact), fact
    assert task.method.momentum == (cohort.momentum or 0.0)
    assert vars(task.method.options) == cohort.method_options


@pytest.mark.parametrize("local", ["", "+cpu", "+cu130"])
def test_run_job_torch_version_omits_build(made, monkeypatch, local: str) -> None:
    """`oso verify` compares the version with rows from other builds of torch."""
    monkeypatch.setattr("torch.__version__", f"9.8.7{local}")
    _, rows = made()
    assert {row["torch_version"] for row in rows} == {"9.8.7"}
