"""The auditor reads a canary's presence in each batch off the answers, up to the noise."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.privacy.helpers import batch_of

from oso_dp.audit.canaries import THRESHOLD, Canaries, lone_canary, many_canaries
from oso_dp.audit.observer import Observer
from oso_dp.errors import OsoError
from oso_dp.methods import State, find_method
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import Run
from oso_dp.training.loop import train
from oso_dp.training.task import StudyTask

STEPS = 3


def watch(name: str, canaries: Canaries, runs: list[str], batch: int) -> Observer:
    """Train almost without noise."""
    kind = find_method(name)
    method = kind(kind.Options(), 0.9)
    observer = Observer(method, canaries.columns)
    starts = [Run(run, 0, 1e-6, THRESHOLD, 0.5) for run in runs]
    recipe = {"method": method, "noise_multiplier": 1e-5, "batch_size": batch}
    recipe |= {"steps": STEPS, "evaluate_every": STEPS}
    task = StudyTask(**recipe, model="linear", metric="accuracy")
    train(task, starts, canaries.arrays, watch=observer)
    return observer


def test_one_run_shows_who_was_in_each_batch() -> None:
    canaries = many_canaries(0)
    observer = watch("online", canaries, ["a"], 1024)
    n = len(canaries.arrays.train_inputs)
    mechanism = Mechanism(["a"], n, 1024)
    for step in range(STEPS):
        taken = np.zeros(n, bool)
        taken[batch_of(mechanism.random_numbers, "a", step + 1)] = True
        expected = taken[canaries.columns] & canaries.present
        assert 300 < expected.sum() < 700
        for name in ("clipped_gradient", "clipped_direction"):
            np.testing.assert_allclose(observer.transcript()[name][step], expected, atol=1e-3)


def test_many_runs_show_it_in_every_answer_as_the_threshold_moves() -> None:
    observer = watch("fixed_quantile", lone_canary(True, 8), ["a", "b", "c"], 4)
    mechanism = Mechanism(["a", "b", "c"], 8, 4)
    expected = [
        [0 in batch_of(mechanism.random_numbers, run, step + 1) for run in "abc"]
        for step in range(STEPS)
    ]
    assert len({tuple(row) for row in expected}) > 1
    assert observer.noise.keys() == {"clipped_gradient", "unclipped_count"}
    np.testing.assert_allclose(observer.transcript()["clipped_gradient"], expected, atol=1e-3)
    # The count's own noise is a share of the batch, not of nu.
    assert observer.transcript()["unclipped_count"].shape == (STEPS, 3)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("auto_s", "automatic_gradient"),
        ("psac", "adaptive_gradient"),
        ("fixed_quantile_per_layer", "clipped_gradient/"),  # the model is its one layer
    ],
)
def test_other_sums_show_a_canary_as_one_too(name, query) -> None:
    observer = watch(name, lone_canary(True, 8), ["a"], 4)
    mechanism = Mechanism(["a"], 8, 4)
    expected = [[0 in batch_of(mechanism.random_numbers, "a", step + 1)] for step in range(STEPS)]
    assert [True] in expected
    np.testing.assert_allclose(observer.transcript()[query], expected, atol=1e-3)


def test_a_count_belongs_to_the_canary_only_if_it_is_alone() -> None:
    observer = watch("fixed_quantile", many_canaries(0), ["a"], 64)
    assert observer.transcript().keys() == {"clipped_gradient"}


def test_a_query_of_which_nothing_is_known_is_refused() -> None:
    class Median(ClippedGradient):
        kind = "median"

    query = Median(1.0, torch.ones(1))
    method = SimpleNamespace(name="new", queries=lambda state: [query])
    one = torch.ones(1)
    with pytest.raises(OsoError, match=r"'median'.*must be one of clipped_gradient"):
        Observer(method, slice(0, 1))(State(one, one, one, one, 1.0, 1), {Median: one})


@pytest.mark.parametrize("factor", [0.2, 5.0, 1.001, 0.999])
@pytest.mark.parametrize("at", [1, 2, 6])
def test_the_largest_move_of_c_is_seen_up_or_down_and_at_whichever_step(at, factor) -> None:
    method = SimpleNamespace(name="moving", queries=lambda state: [])
    observer, one = Observer(method, slice(0, 1)), torch.ones(3)
    path = 0.3 * torch.ones(7, 3, dtype=torch.float64)
    path[at:, 1] *= factor
    path[3:, 0] *= factor**0.1
    for thresholds in path:
        observer(State(one, one, thresholds, one, 1.0, 1), {})
    moves = observer.transcripts(Ledger(PoissonSampling(0.5))).moves
    size = abs(np.log(factor))
    np.testing.assert_allclose(moves, [0.1 * size, size, 0.0], atol=1e-12)
