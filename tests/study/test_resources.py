"""What a job asks for: enough for its data and time, more at each attempt, a GPU to train on."""

import pytest

from oso_dp.study.config import load_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import count_gpus, estimate_memory_mb, estimate_minutes


@pytest.fixture(scope="module")
def paper(repo):
    return load_config(repo / "config/paper.yaml")


def test_memory_is_enough_for_what_was_measured(paper) -> None:
    """Peaks of training on one core, MiB: 697 MNIST, 732 Fashion-MNIST; Snakemake adds 340."""
    asked = {cohort.dataset: estimate_memory_mb(paper, cohort) for cohort in make_cohorts(paper)}
    assert 697 + 340 < asked["mnist"] < 2_000
    assert 732 + 340 < asked["fashion_mnist"] < 2_000
    assert asked["mnist"] < asked["ag_news"] < 3_000


def test_time_is_that_of_the_jobs_runs(paper) -> None:
    """1,172 steps of 0.4 s are 7.8 minutes on 2 cores; on one twice that, and a margin of two.

    The stored runs took up to 28 minutes on one core.
    """
    (cohort,) = (c for c in make_cohorts(paper) if c.name == "mnist.online.k9.eps3")
    for threads, slower in ((1, 2), (2, 1), (8, 1)):
        config = paper.model_copy(update={"threads_per_job": threads})
        for count in (0, 1, 45):
            asked = estimate_minutes(config, cohort, cohort.runs[:count])
            assert asked == pytest.approx(10 + count * 2 * slower * 1172 * 0.4 / 60, abs=1)
    assert estimate_minutes(paper, cohort, cohort.runs[:1]) > 28


@pytest.mark.parametrize(("device", "wanted"), [("cpu", 0), ("cuda", 1)])
def test_a_gpu_is_asked_for_where_one_trains(paper, device: str, wanted: int) -> None:
    config = paper.model_copy(update={"device": device})
    assert count_gpus(config) == wanted
    cohort = make_cohorts(paper)[0]
    assert estimate_memory_mb(config, cohort) == estimate_memory_mb(paper, cohort) + 3_000 * wanted
