"""A batch of several chunks: each layer's norms and sums are those of all its examples."""

import math

import pytest
import torch
from tests.gradients.layer_cases import CASES, alone, prepare
from tests.gradients.test_layer_rules import endless
from torch import nn

from oso_dp.gradients import PRECISIONS, GradientEngine
from oso_dp.gradients.engine import CHUNK_SIZE
from oso_dp.gradients.linear import LinearGradients
from oso_dp.models import build_model
from oso_dp.models.losses import cross_entropy

SIZE, BATCH = 4, 10  # two chunks and a half


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_engine_chunks_match_single_examples(name, runs, monkeypatch) -> None:
    monkeypatch.setattr(GradientEngine, "chunk_size", lambda self, inputs, views=1: SIZE)
    given = prepare(name, runs=runs, batch=BATCH)
    mine, right = given.engine(*given[1:]), alone(given)
    weights = torch.rand(runs, 2, BATCH, dtype=torch.float64)
    within = {"rtol": 1e-9, "atol": 1e-9 * float(right.norm(dim=2).max())}
    torch.testing.assert_close(mine.norms(), right.norm(dim=2), **within)
    torch.testing.assert_close(mine.weighted_sums(weights), weights @ right, **within)


@pytest.mark.parametrize("at", [(0, 0), (1, 5), (2, 9)])
@pytest.mark.parametrize("name", CASES)
def test_engine_nonfinite_example_dropped_across_chunks(name, at, monkeypatch) -> None:
    """The precision is bfloat16, where the last chunk is padded."""
    monkeypatch.setitem(CHUNK_SIZE, "cpu", SIZE)
    given = prepare(name, torch.float32, runs=3, batch=BATCH, precision="bfloat16", loss=endless)
    engine, flats, inputs, targets = given
    weights, expected = torch.rand(3, 2, BATCH), 0
    rest = weights.clone()
    rest[at[0], :, at[1]] = 0.0
    for part in (slice(0, 4), slice(4, 8), slice(8, 10)):
        one = engine(flats, inputs[:, part], targets[:, part])
        expected = expected + one.weighted_sums(rest[..., part])
    targets[at] = 2
    mine = engine(flats, inputs, targets)
    assert mine.norms()[at] == math.inf
    assert mine.norms().isinf().sum() == 1
    torch.testing.assert_close(mine.weighted_sums(weights), expected, rtol=1e-4, atol=1e-5)


SHAPES = {"small_cnn": (1, 14, 14), "bag_of_words": (750,)}


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("at", [(0, 3), (1, 1), (2, 0)])
@pytest.mark.parametrize("name", SHAPES)
def test_engine_nonfinite_example_dropped_across_runs(name, at, poison) -> None:
    """A non-finite example of one of three runs changes no other norm and no sum."""
    torch.manual_seed(0)
    engine = GradientEngine(build_model(name), cross_entropy)
    flats = 0.1 * torch.randn(3, engine.size)
    inputs, targets = torch.rand(3, 4, *SHAPES[name]), torch.randint(0, 3, (3, 4))
    weights = torch.rand(3, 2, 4)
    clean = engine(flats, inputs, targets)
    without = weights.clone()
    without[at[0], :, at[1]] = 0.0
    expected = clean.weighted_sums(without)
    right = clean.norms().clone()
    inputs[at] = poison
    mine = engine(flats, inputs, targets)
    assert mine.norms()[at] == math.inf
    right[at] = math.inf
    torch.testing.assert_close(mine.norms(), right)
    # Whatever weight it has, there is nothing to be weighed.
    torch.testing.assert_close(mine.weighted_sums(weights), expected, rtol=1e-4, atol=1e-5)
    for norms in mine.layer_norms().values():
        assert norms[at] == math.inf
        assert norms.isinf().sum() == 1


@pytest.mark.parametrize("runs", [1, 2, 7])
def test_engine_many_nonfinite_examples_dropped(runs: int) -> None:
    torch.manual_seed(1)
    engine = GradientEngine(
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), cross_entropy
    )
    flats, inputs = torch.randn(runs, engine.size), torch.randn(runs, 100, 6)
    targets, weights = torch.randint(0, 3, (runs, 100)), torch.rand(runs, 1, 100)
    bad = torch.rand(runs, 100) < 0.5
    expected = engine(flats, inputs, targets).weighted_sums(weights.masked_fill(bad[:, None], 0.0))
    inputs[bad] = math.nan
    mine = engine(flats, inputs, targets)
    assert torch.equal(mine.norms().isinf(), bad)
    torch.testing.assert_close(mine.weighted_sums(weights), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runs", [1, 3, 9])
@pytest.mark.parametrize("at", [0, 63, 64, 99])
def test_linear_gradients_tiny_gradient_measured(runs: int, at: int) -> None:
    """Squares underflow in float32; a norm of zero would pass a small threshold unclipped."""
    inputs, errors = torch.ones(runs, 100, 4), torch.ones(runs, 100, 3)
    errors[:, at] = 1e-30
    rule = LinearGradients(nn.Linear(4, 3, bias=False), inputs.flatten(0, 1), errors.flatten(0, 1))
    expected = errors.double().norm(dim=2) * 2
    torch.testing.assert_close(rule.norms().view(runs, 100), expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_engine_whole_model_chunk_within_batch(precision: str, batch: int) -> None:
    """A small model may take a million examples at once, which no batch is padded to."""
    model = nn.Linear(3, 2)
    product_precision = PRECISIONS[precision]
    engine = GradientEngine(model, cross_entropy, product_precision, is_whole_model=True)
    ((inputs, targets),) = engine.chunks(torch.randn(1, batch, 3), torch.zeros(1, batch).long())
    assert inputs.shape == (1, batch, 3)
    assert targets.shape == (1, batch)
