"""What a job asks for: enough for its data and time, more at each attempt, a GPU to train on."""

import pytest

from oso_dp.study.config import load_config
from oso_dp.study.expand import cohorts
from oso_dp.study.needs import gpus, memory_mb, minutes


@pytest.fixture(scope="module")
def paper(repo):
    return load_config(repo / "config/paper.yaml")


def test_memory_is_enough_for_what_was_measured(paper) -> None:
    """Peaks of training on one core, MiB: 697 MNIST, 732 Fashion-MNIST; Snakemake adds 340."""
    asked = {cohort.dataset: memory_mb(cohort) for cohort in cohorts(paper)}
    assert 697 + 340 < asked["mnist"] < 2_000
    assert 732 + 340 < asked["fashion_mnist"] < 2_000
    assert asked["mnist"] < asked["ag_news"] < 3_000


def test_each_attempt_asks_for_more(paper) -> None:
    cohort = cohorts(paper)[0]
    assert [memory_mb(cohort, n) / memory_mb(cohort) for n in (1, 2, 3)] == [1, 2, 3]
    times = [minutes(paper, cohort, cohort.runs, n) for n in (1, 2, 3)]
    assert times == [times[0], 2 * times[0], 3 * times[0]]


def test_time_is_that_of_the_jobs_runs(paper) -> None:
    """1,172 steps of 0.4 s are 7.8 minutes; twice that a run, and ten to start."""
    (cohort,) = (c for c in cohorts(paper) if c.name == "mnist.online.k9.eps3")
    for count in (0, 1, 45):
        asked = minutes(paper, cohort, cohort.runs[:count])
        assert asked == pytest.approx(10 + count * 2 * 1172 * 0.4 / 60, abs=1)


@pytest.mark.parametrize(("device", "wanted"), [("cpu", 0), ("cuda", 1)])
def test_a_gpu_is_asked_for_where_one_trains(paper, device: str, wanted: int) -> None:
    assert gpus(paper.model_copy(update={"device": device})) == wanted
