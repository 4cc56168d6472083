"""In every precision: what is measured is what is summed, and nobody's part exceeds its bound."""

import pytest
import torch
from tests.gradients.one_run import BOUND, OneRun, check_contributions
from tests.gradients.test_against_torch_func import MODELS
from torch import nn

from oso_dp.gradients import PRECISIONS, GradientEngine
from oso_dp.gradients.conv import ConvGradients
from oso_dp.gradients.linear import SequenceKernels
from oso_dp.gradients.other_layers import EmbeddingGradients
from oso_dp.models.losses import cross_entropy, squared_error
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount
from oso_dp.training.loop import train

HERE = ["float32", "bfloat16"]  # those of a CPU

ONE = slice(0, 1)


def prepare(name: str, precision: str, batch: int, runs: int = 1, size: float = 1.0):
    """Code, parameters [R, P], inputs [R, B, ...] and targets; images with pixels up to `size`."""
    build, shape, loss = MODELS[name]
    torch.manual_seed(3)
    model = build()
    model(torch.rand(2, *shape))  # lazy layers take their sizes
    engine = GradientEngine(model, loss, PRECISIONS[precision])
    flats = torch.stack([0.1 * torch.randn(engine.size) for _ in range(runs)])
    inputs = size * torch.rand(runs, batch, *shape)
    targets = inputs * 0.5 if loss is squared_error else torch.randint(0, 3, (runs, batch))
    return engine, flats, inputs, targets


def each_one(engine, flats, inputs, targets) -> torch.Tensor:
    """Every example's gradient as the sums take it, [R, B, P]."""
    runs, size = inputs.shape[:2]
    return engine(flats, inputs, targets).weighted_sums(torch.eye(size).expand(runs, -1, -1))


@pytest.mark.parametrize("precision", HERE)
@pytest.mark.parametrize("name", MODELS)
def test_engine_contribution_within_sensitivity(name, precision) -> None:
    engine, flats, inputs, targets = prepare(name, precision, batch=12, runs=3)
    check_contributions(engine(flats, inputs, targets), 12)


SIZES = [3, 65, 129]
# The large one takes ten seconds for each size where a processor has no bfloat16 of its own.
OF_LARGE = [65]


@pytest.mark.parametrize(
    ("name", "size", "precision"),
    [
        (name, size, precision)
        for name in ["cnn", "autoencoder", "autoencoder_strided", "bag_of_words", "small_cnn"]
        for precision in HERE
        for size in (OF_LARGE if (name, precision) == ("autoencoder", "bfloat16") else SIZES)
    ],
)
def test_engine_neighbouring_sums_within_sensitivity(name, size, precision) -> None:
    """The bound also holds where one more example adds a chunk and shifts other examples."""
    engine, flats, inputs, targets = prepare(name, precision, batch=size)
    flat, inputs, targets = flats[0], inputs[0], targets[0]
    whole = OneRun(engine, flat, inputs, targets)
    threshold = whole.norms().median()[None]  # half of them are clipped
    queries = [ClippedGradient(1.0, threshold), ClippedDirection(1.0, threshold)]
    rounding = size * 2.0**-23  # of a float32 sum of that many terms
    for left_out in (0, size // 2):
        kept = torch.arange(size) != left_out
        less = OneRun(engine, flat, inputs[kept], targets[kept])
        found = []
        for each in (whole, less):
            weights = torch.stack([query.weights(each.norms()[None], ONE)[0] for query in queries])
            found.append(each.weighted_sums(weights).double())
        moved = (found[0] - found[1]).norm(dim=1)
        for query, distance in zip(queries, moved, strict=True):
            assert distance <= float(query.sensitivity(ONE)) * (1 + BOUND + rounding)
        count = UnclippedCount(1.0, threshold)
        votes = [count.weights(each.norms()[None], ONE).sum() for each in (whole, less)]
        assert abs(votes[0] - votes[1]) == 0.5


@pytest.mark.parametrize("name", MODELS)
def test_engine_bfloat16_gradient_batch_independent(name) -> None:
    """A gradient is bitwise equal in each batch; otherwise sums would exceed the sensitivity."""
    engine, flats, inputs, targets = prepare(name, "bfloat16", batch=6)
    alone = each_one(engine, flats, inputs[:, 2:3], targets[:, 2:3])[0, 0]
    assert alone.abs().max() > 0
    for order in ([2, 0, 1], [5, 4, 3, 2, 1, 0], [0, 0, 1, 1, 2]):
        place = order.index(2)
        found = each_one(engine, flats, inputs[:, order], targets[:, order])[0, place]
        assert torch.equal(found, alone)


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
@pytest.mark.parametrize("name", ["small_cnn", "bag_of_words", "sequence", "own layer"])
def test_engine_low_precision_gradient_chunk_independent(name, precision) -> None:
    """All chunks have one size, because a processor may round another size otherwise.

    On a CPU, tf32 is float32 with the chunks of a GPU.
    """
    engine, flats, inputs, targets = prepare(name, precision, batch=70)
    whole = each_one(engine, flats, inputs, targets)[0]
    few = each_one(engine, flats, inputs[:, 60:], targets[:, 60:])[0]
    assert torch.equal(whole[60:], few)
    assert [xs.shape[1] for xs, _ in engine.chunks(inputs, targets)] == [64, 64]


@pytest.mark.parametrize("name", MODELS)
def test_engine_bfloat16_differs_slightly_from_float32(name) -> None:
    engine, flats, inputs, targets = prepare(name, "bfloat16", batch=6, runs=2)
    low = each_one(engine, flats, inputs, targets)
    engine.precision = PRECISIONS["float32"]
    full = each_one(engine, flats, inputs, targets)
    distances = (low - full).norm(dim=2) / full.norm(dim=2)
    assert distances.max() < 0.15
    assert distances.min() > 1e-4
    assert low.dtype == torch.float32


@pytest.mark.parametrize("name", ["cnn", "bag_of_words", "autoencoder", "layer norm"])
def test_engine_bfloat16_sums_unrounded(name) -> None:
    """A sum rounded to bfloat16 would change by more than C when one example is added."""
    engine, flats, inputs, targets = prepare(name, "bfloat16", batch=8)
    each = each_one(engine, flats, inputs, targets)[0].double()
    weights = torch.rand(1, 2, 8)
    found = engine(flats, inputs, targets).weighted_sums(weights)[0]
    wanted = weights[0].double() @ each
    assert ((found - wanted).norm(dim=1) <= 1e-6 * wanted.norm(dim=1)).all()
    assert not torch.equal(found, found.bfloat16().float())


class Upright(nn.Module):
    """Not defined at zero: what fills up a chunk has no finite gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=1, keepdim=True)


def test_engine_chunk_padding_ignored() -> None:
    model = nn.Sequential(Upright(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    engine = GradientEngine(model, cross_entropy, PRECISIONS["bfloat16"])
    torch.manual_seed(0)
    found = OneRun(engine, torch.randn(engine.size), torch.rand(3, 6), torch.tensor([0, 1, 2]))
    assert found.norms().isfinite().all()
    assert found.weighted_sums(torch.ones(1, 3)).isfinite().all()
    assert found.weighted_sums(torch.ones(1, 3)).any()


def test_engine_plain_sums_outputs_use_bfloat16() -> None:
    engine, flats, inputs, targets = prepare("small_cnn", "bfloat16", batch=70)
    each = each_one(engine, flats, inputs, targets)
    plain = engine(flats, inputs, targets).plain_sums(torch.ones(1, 70).bool())
    low = engine.outputs(flats[0], inputs[0])
    # Processors round such products in ways of their own: one of 13,114 was 0.023 off.
    torch.testing.assert_close(plain, each.sum(dim=1), rtol=0.04, atol=0.02)
    engine.precision = PRECISIONS["float32"]
    full = engine.outputs(flats[0], inputs[0])
    assert low.dtype == full.dtype == torch.float32
    assert 1e-5 < (low - full).norm() / full.norm() < 0.02


@pytest.mark.parametrize("name", ["online", "fixed_quantile", "no_dp"])
def test_train_bfloat16_runs_match_alone(name, arrays, make_task, make_run) -> None:
    """Ledgers are equal; losses differ by rounding, because the order of summation differs."""
    starts = [make_run(f"r{i}", i, 0.02) for i in range(3)]
    task = make_task(name, precision="bfloat16")
    together = train(task, starts, arrays)
    for start, one in zip(starts, together, strict=True):
        other = train(task, [start], arrays)[0]
        assert one.ledger == other.ledger
        for a, b in zip(one.evaluations, other.evaluations, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=0.01)


def test_layer_gradients_place_sums_kept_float32() -> None:
    """Gradients of a bias or a frequent word sum 300 bfloat16 numbers in float32."""
    torch.manual_seed(0)
    inputs, errors = torch.randn(3, 300, 4).bfloat16(), torch.randn(3, 300, 2).bfloat16()
    exact, image = errors.double().sum(dim=1), (3, 2, 20, 15)
    convolution = ConvGradients(
        nn.Conv2d(4, 2, 1), inputs.mT.reshape(3, 4, 20, 15), errors.mT.reshape(image)
    )
    sequence = SequenceKernels(nn.Linear(4, 2), inputs, errors)
    words = EmbeddingGradients(nn.Embedding(5, 2), torch.full((3, 300), 2), errors)
    for sums in (convolution.bias, sequence.gradients["bias"], words.rows[:, 0]):
        assert sums.dtype == torch.float32
        torch.testing.assert_close(sums.double(), exact, rtol=1e-5, atol=1e-5)
