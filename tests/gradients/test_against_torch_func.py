"""The gradient engine against torch.func's per-example gradients of the whole model, in float64."""

import math

import pytest
import torch
from tests.gradients.one_run import OneRun
from torch import nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.gradients.layer_gradients import (
    CHUNK_BYTES,
    MaterializedGradients,
    chunks,
    is_async_device,
    row_norms,
)
from oso_dp.gradients.linear import LinearGradients
from oso_dp.models import build_model
from oso_dp.models.losses import cross_entropy, squared_error
from oso_dp.privacy.queries import ClippedGradient


class Gate(nn.Module):
    """A layer without a rule of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.scale) + self.scale


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


MODELS = {
    "cnn": (lambda: build_model("cnn"), (1, 28, 28), cross_entropy),
    "autoencoder": (lambda: build_model("autoencoder"), (1, 28, 28), squared_error),
    "autoencoder_strided": (lambda: build_model("autoencoder_strided"), (1, 28, 28), squared_error),
    "bag_of_words": (lambda: build_model("bag_of_words"), (750,), cross_entropy),
    "small_cnn": (lambda: build_model("small_cnn"), (1, 14, 14), cross_entropy),
    "odd convolution": (
        lambda: sequential(nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2))),
        (2, 9, 8),
        cross_entropy,
    ),
    # By rows of the image, since no stride is in the way, and by patches.
    "rows padded above and below only": (
        lambda: sequential(nn.Conv2d(2, 3, 3, padding=(1, 0))),
        (2, 6, 6),
        cross_entropy,
    ),
    "patches padded left and right only": (
        lambda: sequential(nn.Conv2d(2, 3, 3, stride=(2, 1), padding=(0, 2))),
        (2, 6, 6),
        cross_entropy,
    ),
    "odd transposed convolution": (
        lambda: sequential(
            nn.ConvTranspose2d(
                2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 3), output_padding=(1, 2)
            )
        ),
        (2, 5, 6),
        cross_entropy,
    ),
    "odd rows of a transposed convolution": (
        lambda: sequential(
            nn.ConvTranspose2d(2, 3, (3, 2), (1, 2), (2, 1), dilation=(2, 3), output_padding=(1, 1))
        ),
        (2, 5, 6),
        cross_entropy,
    ),
    "grouped convolution": (
        lambda: sequential(nn.Conv2d(4, 4, 3, groups=2)),
        (4, 6, 6),
        cross_entropy,
    ),
    "same padding": (
        lambda: sequential(nn.Conv2d(1, 2, 3, padding="same", bias=False)),
        (1, 6, 6),
        cross_entropy,
    ),
    "circular padding": (
        lambda: sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")),
        (1, 6, 6),
        cross_entropy,
    ),
    "no bias": (lambda: sequential(nn.Linear(6, 5, bias=False), nn.ReLU()), (6,), cross_entropy),
    "sequence": (lambda: sequential(nn.Linear(6, 4), nn.Tanh()), (5, 6), cross_entropy),
    "layer norm": (lambda: sequential(nn.Linear(6, 4), nn.LayerNorm(4)), (6,), cross_entropy),
    "group norm": (
        lambda: sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4)),
        (1, 6, 6),
        cross_entropy,
    ),
    "own layer": (lambda: sequential(nn.Linear(6, 4), Gate(4)), (6,), cross_entropy),
}


def prepare(name: str, batch: int = 5):
    build, shape, loss = MODELS[name]
    torch.manual_seed(1)
    model = build()
    model(torch.rand(2, *shape))  # lazy layers take their sizes
    engine = GradientEngine(model.double(), loss)
    # Not the parameters that the model itself holds: the engine must use those it is given.
    flat = 0.2 * torch.randn(engine.size, dtype=torch.double)
    inputs = torch.rand(batch, *shape, dtype=torch.double)
    targets = inputs * 0.5 if loss is squared_error else torch.randint(0, 3, (batch,))
    return engine, flat, inputs, targets


def oracle(engine, flat, inputs, targets) -> torch.Tensor:
    """Per-example gradients [B, P] of the whole model at once."""

    def loss(flat, x, y):
        outputs = torch.func.functional_call(engine.model, engine.parameters(flat), (x[None],))
        return engine.loss(outputs, y[None])[0]

    return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(flat, inputs, targets)


@pytest.mark.parametrize("name", MODELS)
def test_engine_gradients_match_torch_func(name: str) -> None:
    engine, flat, inputs, targets = prepare(name)
    gradients = oracle(engine, flat, inputs, targets)
    mine = OneRun(engine, flat, inputs, targets)
    weights = torch.rand(2, len(inputs), dtype=torch.double)
    torch.testing.assert_close(mine.norms(), gradients.norm(dim=1), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(
        mine.weighted_sums(weights), weights @ gradients, rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(mine.plain_sums(), gradients.sum(dim=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_engine_runs_together_match_alone(name: str) -> None:
    """Each run has its own parameters, batch and weights; none may reach another's."""
    engine, flat, inputs, targets = prepare(name, batch=6)
    inputs, targets = inputs.unflatten(0, (3, 2)), targets.unflatten(0, (3, 2))
    flats = flat + 0.2 * torch.randn(3, engine.size, dtype=torch.double)
    weights = torch.rand(3, 2, 2, dtype=torch.double)
    together = engine(flats, inputs, targets)
    present = torch.tensor([[True, True], [True, False], [False, False]])
    sums, plain = together.weighted_sums(weights), together.plain_sums(present)
    for run in range(3):
        alone = OneRun(engine, flats[run], inputs[run], targets[run])
        for mine, expected in (
            (together.norms()[run], alone.norms()),
            (sums[run], alone.weighted_sums(weights[run])),
            (plain[run], alone.plain_sums(present[run])),
            *zip(
                (norms[run] for norms in together.layer_norms().values()),
                alone.layer_norms().values(),
                strict=True,
            ),
        ):
            torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["cnn", "autoencoder", "odd convolution"])
def test_engine_chunked_norms_match_torch_func(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 1)  # one example at a time
    engine, flat, inputs, targets = prepare(name)
    gradients = oracle(engine, flat, inputs, targets)
    torch.testing.assert_close(
        OneRun(engine, flat, inputs, targets).norms(), gradients.norm(dim=1), rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize("name", ["cnn", "own layer"])
def test_engine_empty_batch_sums_zero(name: str) -> None:
    engine, flat, inputs, targets = prepare(name)
    empty = OneRun(engine, flat, inputs[:0], targets[:0])
    assert empty.norms().shape == (0,)
    assert torch.equal(empty.weighted_sums(torch.ones(2, 0)), torch.zeros(2, engine.size).double())
    assert torch.equal(empty.plain_sums(), torch.zeros(engine.size).double())


class OwnParameterAndChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 3), nn.Parameter(torch.rand(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def test_engine_nested_layers_match_torch_func() -> None:
    engine = GradientEngine(OwnParameterAndChild().double(), cross_entropy)
    flat, inputs = torch.randn(engine.size).double(), torch.rand(4, 3).double()
    targets = torch.tensor([0, 1, 2, 0])
    gradients = oracle(engine, flat, inputs, targets)
    mine = OneRun(engine, flat, inputs, targets)
    torch.testing.assert_close(mine.norms(), gradients.norm(dim=1), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(
        mine.weighted_sums(torch.ones(1, 4).double())[0], gradients.sum(dim=0)
    )


def test_engine_nested_layers_several_runs_rejected() -> None:
    """A layer inside a layer with own parameters would see the examples of one run only."""
    engine = GradientEngine(OwnParameterAndChild(), cross_entropy)
    both = engine(
        torch.rand(2, engine.size), torch.rand(2, 4, 3), torch.zeros(2, 4, dtype=torch.long)
    )
    with pytest.raises(OsoError, match="one run at a time"):
        both.norms()


@pytest.mark.parametrize("large", [1.0, 1e12, 4e17])
@pytest.mark.parametrize("small", [1e-18, 1e-22, 1e-30])
def test_linear_gradients_extreme_factors_measured(large: float, small: float) -> None:
    """Squares of the output gradients leave float32's range, but products with inputs do not."""
    inputs = torch.full((2, 3), large)
    output_gradients = torch.full((2, 5), small)
    expected = torch.full((2,), math.sqrt(3 * 5) * large * small, dtype=torch.double)
    norms = LinearGradients(nn.Linear(3, 5, bias=False), inputs, output_gradients).norms()
    torch.testing.assert_close(norms, expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize(("inputs", "outputs"), [(1e33, 1e-20), (1e-40, 1e30), (1e20, 1e20)])
def test_linear_gradients_huge_factor_dropped(inputs: float, outputs: float) -> None:
    """A huge factor makes the norm infinite: its weighted product may be rounded or overflow."""
    rule = LinearGradients(
        nn.Linear(3, 5, bias=False), torch.full((1, 3), inputs), torch.full((1, 5), outputs)
    )
    assert rule.norms().tolist() == [math.inf]


def test_row_norms_long_row_accurate() -> None:
    """A float32 sum of ten million squares loses 1 %, and the example would exceed the clip."""
    assert row_norms(torch.full((1, 10_000_000), 0.1)).item() == pytest.approx(
        0.1 * math.sqrt(1e7), rel=5e-5
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [0, 1, 7, 2**14, 2**14 + 3])
def test_row_norms_extreme_squares_accurate(length: int, dtype: torch.dtype) -> None:
    """Each row holds zeros and copies of one tiny, huge or non-finite number, or zeros only."""
    numbers = [0.0, -0.0, 1e-30, -1e-30, 1e-13, -1e-44, 1.0, -1e25, math.inf, -math.inf, math.nan]
    rows = torch.zeros(2 * len(numbers), length, dtype=dtype)
    for row, number in enumerate(numbers):
        rows[2 * row, length // 2 :] = number  # among zeros, if it is a long row
        rows[2 * row + 1, -1:] = number
    expected = torch.linalg.vector_norm(rows.double(), dim=1)
    torch.testing.assert_close(row_norms(rows), expected, rtol=1e-5, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 100, 2**13, 2**13 + 1, 2**14])
def test_row_norms_all_magnitudes_accurate(length: int, dtype: torch.dtype) -> None:
    """Norms are accurate for numbers from 1e-44 to 3e37, in short and in long rows."""
    sizes = 10.0 ** torch.arange(-44, 38, 0.5, dtype=torch.float64)
    numbers = sizes.to(dtype)[:, None]
    signs = torch.tensor([1.0, -1.0], dtype=dtype).repeat(length)[:length]
    expected = numbers[:, 0].double() * math.sqrt(length)
    torch.testing.assert_close(row_norms(numbers * signs), expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("length", [2**12, 2**13, 2**13 + 2**12, 2**14, 2**15 + 5])
def test_materialized_gradients_equal_numbers_clipped(length: int) -> None:
    """Sums of equal squares round in one direction; the bound of privacy.md holds nevertheless."""
    numbers = torch.linspace(1.0, 2.0, 300)[:, None].expand(-1, length).contiguous()
    rule = MaterializedGradients({"weight": numbers})
    weights = ClippedGradient(1.0, torch.ones(1)).weights(rule.norms().float()[None], slice(0, 1))
    alone = torch.diag(weights[0])[None]  # [1, J, B]: a sum of each
    sums = rule.weighted_sums(alone)["weight"][0]
    assert float(sums.double().norm(dim=1).max()) <= 1 + 1e-5


@pytest.mark.parametrize("bytes_each", [1, 1000, 2**15 + 1, 70_000, 150_000, 10**6, 10**7])
def test_chunks_parts_equally_sized(bytes_each: int) -> None:
    """All parts of a chunk have one size, because rounding may depend on the size."""
    parts = list(chunks(torch.zeros(64, 1), bytes_each))
    places = [range(64)[part] for part in parts]
    assert [place for part in places for place in part] == list(range(64))
    assert len({len(part) for part in places}) == 1


def test_engine_overlong_gradient_dropped() -> None:
    """A gradient with an infinite norm would make the noisy sum infinite and stop the run."""
    engine = GradientEngine(nn.Sequential(nn.Linear(3, 3)), cross_entropy)
    inputs = torch.rand(2, 3)
    inputs[0] = 1e20
    mine = OneRun(engine, torch.zeros(engine.size), inputs, torch.tensor([0, 1]))
    assert mine.norms()[0] == math.inf
    assert mine.weighted_sums(torch.tensor([[1.0, 0.0]])).abs().max() == 0


def test_is_async_device_cpu_excluded() -> None:
    assert not is_async_device(torch.zeros(1))
    assert is_async_device(torch.zeros(1, device="meta"))
