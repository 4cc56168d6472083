"""What lies ahead of a study: runs that are not stored, their jobs and their hours."""

import pytest

from oso_dp.study.config import parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import estimate_workload


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


def test_every_run_is_ahead_of_a_new_study(study) -> None:
    """Of k = 5 and two seeds: 10 runs of Online, 50 of FixedThreshold, 10 of NoDP."""
    found = ahead(study)
    assert (found.private.runs, found.plain.runs, found.stored) == (3 * 60, 2 * 10, 0)
    assert (found.private.cohorts, found.plain.cohorts) == (6, 2)
    assert found.private.jobs == 3 * (3 + 13)
    mnist, fashion = hours(study, 2 * 60 + 10, "mnist"), hours(study, 60 + 10, "fashion_mnist")
    assert found.hours == pytest.approx(mnist + fashion)
    assert found.plain.hours == pytest.approx(
        hours(study, 10, "mnist") + hours(study, 10, "fashion_mnist")
    )


def test_what_is_stored_takes_no_hours_and_no_job(study) -> None:
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


def test_the_table_has_a_line_for_each_method_with_a_run_left(study) -> None:
    every = make_cohorts(study)
    kept = {run.run_id for c in every if c.method == "no_dp" for run in c.runs}
    kept |= {run.run_id for run in every[0].runs[:3]}
    found = ahead(study, kept)
    head, *lines = [line.split() for line in found.table().splitlines()]
    assert head[-4:] == ["runs", "stored", "jobs", "hours"]
    shown = {(line[0], line[1]): line[2:] for line in lines}
    assert shown.keys() == {key for key, count in found.parts.items() if count.jobs}
    for key, cells in shown.items():
        count = found.parts[key]
        assert [float(cell.replace(",", "")) for cell in cells] == [
            *(count.runs, count.stored, count.jobs, pytest.approx(count.hours, abs=0.05))
        ]
    assert shown["mnist", "online"][1] == "3"
    everything = {run.run_id for c in every for run in c.runs}
    assert ahead(study, everything).table() == "all runs are stored"
