"""A batch of several chunks: each layer's norms and sums are those of all its examples."""

import math

import pytest
import torch
from tests.gradients.layer_cases import CASES, alone, prepare
from tests.gradients.test_layer_rules import endless

from oso_dp.gradients import GradientEngine
from oso_dp.gradients.engine import CHUNK_SIZE

SIZE, BATCH = 4, 10  # two chunks and a half


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_sums_over_chunks_are_those_of_each_example(name, runs, monkeypatch) -> None:
    monkeypatch.setattr(GradientEngine, "chunk_size", lambda self, inputs: SIZE)
    given = prepare(name, runs=runs, batch=BATCH)
    mine, right = given.code(*given[1:]), alone(given)
    weights = torch.rand(runs, 2, BATCH, dtype=torch.float64)
    within = {"rtol": 1e-9, "atol": 1e-9 * float(right.norm(dim=2).max())}
    torch.testing.assert_close(mine.norms(), right.norm(dim=2), **within)
    torch.testing.assert_close(mine.weighted_sums(weights), weights @ right, **within)


@pytest.mark.parametrize("at", [(0, 0), (1, 5), (2, 9)])
@pytest.mark.parametrize("name", CASES)
def test_an_example_that_is_not_finite_counts_for_nothing_in_any_chunk(
    name, at, monkeypatch
) -> None:
    """In bfloat16, whose last chunk is filled up, too."""
    monkeypatch.setitem(CHUNK_SIZE, "cpu", SIZE)
    given = prepare(name, torch.float32, runs=3, batch=BATCH, precision="bfloat16", loss=endless)
    code, flats, inputs, targets = given
    weights, expected = torch.rand(3, 2, BATCH), 0
    rest = weights.clone()
    rest[at[0], :, at[1]] = 0.0
    for part in (slice(0, 4), slice(4, 8), slice(8, 10)):
        one = code(flats, inputs[:, part], targets[:, part])
        expected = expected + one.weighted_sums(rest[..., part])
    targets[at] = 2
    mine = code(flats, inputs, targets)
    assert mine.norms()[at] == math.inf
    assert mine.norms().isinf().sum() == 1
    torch.testing.assert_close(mine.weighted_sums(weights), expected, rtol=1e-4, atol=1e-5)
