"""A row tells its run: whatever a study chooses arrives in the training, and is in the row."""

from dataclasses import replace
from typing import Any

import pytest
from tests.training.test_job import study

from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import make_run
from oso_dp.training import job
from oso_dp.training.evaluate import Outcome
from oso_dp.training.job import make_task, run_job

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
def test_each_row_leads_back_to_its_run(made, name: str) -> None:
    cohort, rows = made(**CHOICES[name])
    assert [row["run_id"] for row in rows] == [run.run_id for run in cohort.runs]
    for run, row in zip(cohort.runs, rows, strict=True):
        again, same = make_run(row)
        assert same == run
        assert again == replace(cohort, runs=(run,))


@pytest.mark.parametrize("name", CHOICES)
def test_a_row_says_steps_and_noise_of_its_cohort(made, name: str) -> None:
    cohort, rows = made(**CHOICES[name])
    for row in rows:
        assert row["steps"] == cohort.steps
        assert row["noise_multiplier"] == (cohort.noise_multiplier or None)
        assert row["query_noise_multiplier"] == cohort.query_noise_multiplier
        assert row["sampling"] == "poisson"


@pytest.mark.parametrize("name", CHOICES)
def test_whatever_is_chosen_arrives_in_the_training(name: str) -> None:
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
def test_a_row_says_the_version_of_torch_without_its_build(made, monkeypatch, local: str) -> None:
    """`oso verify` compares it with others' rows."""
    monkeypatch.setattr("torch.__version__", f"9.8.7{local}")
    _, rows = made()
    assert {row["torch_version"] for row in rows} == {"9.8.7"}
