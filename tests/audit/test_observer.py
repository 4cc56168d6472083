"""Canaries do to each sum what the auditor takes for granted, and it reads them off the answers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.privacy.helpers import batch_of, sums_of_one

from oso_dp.audit.canaries import THRESHOLD, Canaries, lone_canary, many_canaries
from oso_dp.audit.observer import FOOTPRINTS, Observer
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.methods import State, find_method
from oso_dp.models import build_model, parameter_count
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount
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


def test_observer_many_canaries_match_batches() -> None:
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
            np.testing.assert_allclose(observer.answers()[name][step], expected, atol=1e-3)


def test_observer_moving_threshold_matches_batches() -> None:
    observer = watch("fixed_quantile", lone_canary(True, 8), ["a", "b", "c"], 4)
    mechanism = Mechanism(["a", "b", "c"], 8, 4)
    expected = [
        [0 in batch_of(mechanism.random_numbers, run, step + 1) for run in "abc"]
        for step in range(STEPS)
    ]
    assert len({tuple(row) for row in expected}) > 1
    assert observer.noise.keys() == {"clipped_gradient", "unclipped_count"}
    np.testing.assert_allclose(observer.answers()["clipped_gradient"], expected, atol=1e-3)
    # The count's own noise is a share of the batch, not of nu.
    assert observer.answers()["unclipped_count"].shape == (STEPS, 3)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("auto_s", "automatic_gradient"),
        ("psac", "adaptive_gradient"),
        ("fixed_quantile_per_layer", "clipped_gradient/"),  # the model is its one layer
    ],
)
def test_observer_other_queries_match_batches(name, query) -> None:
    observer = watch(name, lone_canary(True, 8), ["a"], 4)
    mechanism = Mechanism(["a"], 8, 4)
    expected = [[0 in batch_of(mechanism.random_numbers, "a", step + 1)] for step in range(STEPS)]
    assert [True] in expected
    np.testing.assert_allclose(observer.answers()[query], expected, atol=1e-3)


def test_observer_count_requires_lone_canary() -> None:
    observer = watch("fixed_quantile", many_canaries(0), ["a"], 64)
    assert observer.answers().keys() == {"clipped_gradient"}


def test_observer_unknown_query_raises() -> None:
    class Median(ClippedGradient):
        kind = "median"

    query = Median(1.0, torch.ones(1))
    method = SimpleNamespace(name="new", queries=lambda state: [query])
    one = torch.ones(1)
    with pytest.raises(OsoError, match=r"'median'.*must be one of clipped_gradient"):
        Observer(method, slice(0, 1))(State(one, one, one, one, 1.0, 1), {Median: one})


@pytest.mark.parametrize("factor", [0.2, 5.0, 1.001, 0.999])
@pytest.mark.parametrize("at", [1, 2, 6])
def test_observer_records_largest_threshold_move(at, factor) -> None:
    method = SimpleNamespace(name="moving", queries=lambda state: [])
    observer, one = Observer(method, slice(0, 1)), torch.ones(3)
    path = 0.3 * torch.ones(7, 3, dtype=torch.float64)
    path[at:, 1] *= factor
    path[3:, 0] *= factor**0.1
    for thresholds in path:
        observer(State(one, one, thresholds, one, 1.0, 1), {})
    moves = observer.transcript(Ledger(PoissonSampling(0.5))).moves
    size = abs(np.log(factor))
    np.testing.assert_allclose(moves, [0.1 * size, size, 0.0], atol=1e-12)


C = torch.tensor([THRESHOLD])
QUERIES = [ClippedGradient(1.0, C), ClippedDirection(1.0, C), UnclippedCount(1.0, C)]


@pytest.fixture(scope="module")
def many() -> Canaries:
    return many_canaries(0)


def sums_over(canaries: Canaries, rows: np.ndarray, scale: float = 0.0) -> list[torch.Tensor]:
    """The exact sums over these rows, at parameters of this size."""
    model = build_model("linear")
    generator = torch.Generator().manual_seed(0)
    parameters = scale * torch.randn(parameter_count(model), generator=generator)
    inputs, targets = canaries.arrays.train_inputs[rows], canaries.arrays.train_targets[rows]
    code = GradientEngine(model, cross_entropy)
    batch = code(parameters[None], torch.from_numpy(inputs)[None], torch.from_numpy(targets)[None])
    return sums_of_one(QUERIES, batch)


@pytest.mark.parametrize("scale", [0.0, 1e-3])
def test_canaries_add_footprint_along_direction(many: Canaries, scale: float) -> None:
    rows = np.flatnonzero(many.present)[[5, 80]] + many.columns.start
    gradient, direction, count = sums_over(many, rows, scale)
    for query, total in ((QUERIES[0], gradient), (QUERIES[1], direction)):
        footprint = FOOTPRINTS[query.name](C).item()
        expected = torch.zeros(2, total.numel() // 2)
        expected[0, rows], expected[1, rows] = -footprint / 2**0.5, footprint / 2**0.5
        torch.testing.assert_close(total.view(2, -1), expected, rtol=1e-5, atol=1e-6)
    assert count == 2 * FOOTPRINTS["unclipped_count"](C)


def test_footprints_equal_sensitivity(many: Canaries) -> None:
    for query in QUERIES:
        assert abs(FOOTPRINTS[query.name](C).item()) == float(query.sensitivity(slice(0, 1)))


def test_canaries_absent_add_nothing(many: Canaries) -> None:
    present = np.arange(many.columns.start + 50)[np.r_[np.ones(96, bool), many.present[:50]]]
    everyone = np.arange(many.columns.start + 50)
    assert len(present) < len(everyone)
    for without, with_gaps in zip(sums_over(many, present), sums_over(many, everyone), strict=True):
        torch.testing.assert_close(without, with_gaps, rtol=1e-5, atol=1e-5)
    for total in sums_over(lone_canary(False, 8), np.arange(8)):
        assert not total.any()


def test_canaries_columns_exclude_ordinary_examples(many: Canaries) -> None:
    gradient, _, count = sums_over(many, np.arange(96))
    assert not gradient.view(2, -1)[:, many.columns].any()
    assert gradient.any()
    assert abs(count) < 48  # some are clipped and some are not


def test_many_canaries_seed_selects_half(many: Canaries) -> None:
    assert len(many.present) == 4000
    assert abs(many.present.mean() - 0.5) < 0.03
    other = many_canaries(1).present
    assert 0.4 < (other == many.present).mean() < 0.6
