"""What lies ahead of a study: counted run by run."""

import pytest

from oso_dp.study.config import parse_config
from oso_dp.study.expand import cohorts
from oso_dp.study.workload import workload

PER_STEP = {"mnist": 1.5, "glyphs": 0.25}
STUDY = {
    "name": "test",
    "datasets": {
        "mnist": {"model": "cnn", "epsilons": [3, 9], "seconds_per_step": PER_STEP["mnist"]},
        "glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": PER_STEP["glyphs"]},
    },
    "methods": {"online": {}, "fixed_threshold": {}, "no_dp": {}},
    "granularities": [3],
    "seeds": [0, 1],
    "runs_per_job": 4,
}


@pytest.mark.parametrize("stored_of_ten", [0, 3, 9, 10])
def test_what_is_stored_is_no_work(stored_of_ten: int) -> None:
    """Neither hours nor a job; each run counts with the steps and the speed of its data set."""
    config = parse_config(STUDY, "x")
    every = cohorts(config)
    runs = [(cohort, place, run) for cohort in every for place, run in enumerate(cohort.runs)]
    stored = {run.run_id for i, (_, _, run) in enumerate(runs) if i % 10 < stored_of_ten}
    found = workload(config, every, stored)
    left = [(cohort, place) for cohort, place, run in runs if run.run_id not in stored]
    seconds = sum(cohort.steps * PER_STEP[cohort.dataset] for cohort, _ in left)
    assert found.hours == pytest.approx(seconds / 3600)
    assert found.stored == len(stored)
    jobs = {(cohort.name, place // 4) for cohort, place in left}
    counts = (found.private, found.plain)
    assert sum(count.jobs for count in counts) == len(jobs)
    assert sum(count.runs for count in counts) == len(runs)
    assert found.plain.runs == 2 * 3 * 2  # NoDP's, on two data sets
    for key, of in found.parts.items():
        mine = [c for c, _ in left if (c.dataset, c.method) == key]
        expected = sum(c.steps for c in mine) * PER_STEP[key[0]] / 3600
        assert of.hours == pytest.approx(expected)
