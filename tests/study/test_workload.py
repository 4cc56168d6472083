"""What lies ahead of a study: runs, jobs, hours, and what each job asks for."""

import pytest

from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import (
    estimate_minutes,
    estimate_workload,
)


@pytest.fixture
def study(base):
    base["datasets"]["fashion_mnist"] = {
        **{"model": "autoencoder", "epsilons": [1]},
        "seconds_per_step": 2.0,
    }
    return parse_config({**base, "values_per_axis": [5], "runs_per_job": 4}, "x")


def ahead(config, stored=()):
    return estimate_workload(config, make_cohorts(config), stored)


def hours(config, runs: int, dataset: str) -> float:
    return runs * 1172 * config.datasets[dataset].seconds_per_step / 3600


def test_estimate_workload_new_study_counts_all(study) -> None:
    """At k = 5 and two seeds, Online has 10 runs, FixedThreshold 50 and NoDP 10."""
    found = ahead(study)
    assert (found.private.runs, found.plain.runs, found.stored) == (3 * 60, 2 * 10, 0)
    assert (found.private.cohorts, found.plain.cohorts) == (6, 2)
    assert found.private.jobs == 3 * (3 + 13)
    mnist, fashion = hours(study, 2 * 60 + 10, "mnist"), hours(study, 60 + 10, "fashion_mnist")
    assert found.hours == pytest.approx(mnist + fashion)
    assert found.plain.hours == pytest.approx(
        hours(study, 10, "mnist") + hours(study, 10, "fashion_mnist")
    )


def test_estimate_workload_excludes_stored_runs(study) -> None:
    every = {(c.dataset, c.method, c.epsilon): c for c in make_cohorts(study)}
    plain = every["fashion_mnist", "no_dp", None]
    online = every["mnist", "online", 3]
    kept = {run.run_id for run in (*plain.runs, *online.shards(4)[0], online.shards(4)[1][0])}
    before, found = ahead(study), ahead(study, kept)
    assert (found.private.stored, found.plain.stored, found.stored) == (5, 10, 15)
    assert found.private.runs == before.private.runs
    # Of one job all runs are there, of the next one alone.
    assert before.private.jobs - found.private.jobs == 1
    assert before.plain.jobs - found.plain.jobs == 3
    gone = hours(study, 5, "mnist") + hours(study, 10, "fashion_mnist")
    assert before.hours - found.hours == pytest.approx(gone)
    assert f"; 15 of them stored; about {found.hours:,.1f} hours left" in str(found)


@pytest.fixture(scope="module")
def paper(repo):
    return load_config(repo / "config/paper.yaml")


def test_estimate_minutes_scales_with_runs(paper) -> None:
    """The estimate is 10 minutes plus twice the runs' time, which doubles on one core.

    The stored runs took up to 28 minutes on one core.
    """
    (cohort,) = (c for c in make_cohorts(paper) if c.name == "mnist.online.k9.eps3")
    for threads, slower in ((1, 2), (2, 1), (8, 1)):
        config = paper.model_copy(update={"threads_per_job": threads})
        for count in (0, 1, 45):
            asked = estimate_minutes(config, cohort, cohort.runs[:count])
            assert asked == pytest.approx(10 + count * 2 * slower * 1172 * 0.4 / 60, abs=1)
    assert estimate_minutes(paper, cohort, cohort.runs[:1]) > 28
