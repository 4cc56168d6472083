"""The gradient engine refuses models and losses whose per-example gradients it would get wrong."""

from functools import partial

import pytest
import torch
from tests.gradients.one_run import OneRun
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_independence
from oso_dp.gradients.layer_gradients import row_norms
from oso_dp.gradients.linear import LinearGradients
from oso_dp.models.losses import cross_entropy

LABELS = torch.zeros(0, dtype=torch.int64)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Unmixed(nn.Module):
    """Treats each example by itself, but keeps averages over all of them in its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 4), nn.InstanceNorm2d(1, track_running_stats=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x).view(-1, 1, 2, 2)).flatten(1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "mixes examples"),
        (Unmixed(), "InstanceNorm2d, which mixes examples"),
        (Unused(), "not used"),
        (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(inplace=True)), "in place"),
    ],
)
def test_engine_unsupported_model_rejected(model, message) -> None:
    def norms() -> torch.Tensor:
        engine = GradientEngine(model, cross_entropy)
        check_independence(engine, torch.rand(engine.size), torch.zeros(0, 3), LABELS)
        return OneRun(
            engine, torch.rand(engine.size), torch.rand(2, 3), torch.tensor([0, 1])
        ).norms()

    with pytest.raises(OsoError, match=message):
        norms()


class OwnNorm(nn.BatchNorm1d):
    """Of a kind that this package does not know."""


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", [OwnNorm, nn.SyncBatchNorm, nn.BatchNorm2d, nn.BatchNorm3d])
def test_check_layer_batchnorm_kinds_rejected(kind, affine) -> None:
    norm = kind(3, affine=affine, track_running_stats=False)
    with pytest.raises(OsoError, match=f"layer '1' is a {kind.__name__}, which mixes examples"):
        GradientEngine(nn.Sequential(nn.Linear(3, 3), norm), cross_entropy)


class Tokens(nn.Module):
    """Each example's twelve inputs as four rows of three, through one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(-1, 3)).reshape(len(x), -1, 3).sum(dim=1)


def test_engine_spread_example_rejected() -> None:
    """Each row would be clipped by itself, and the example contribute four times the threshold."""
    engine = GradientEngine(Tokens(), cross_entropy)
    with pytest.raises(OsoError, match=r"one row each \(layer 'layer'\)"):
        OneRun(
            engine, torch.rand(engine.size), torch.rand(5, 12), torch.zeros(5, dtype=torch.long)
        ).norms()


def test_engine_surplus_norms_rejected(monkeypatch) -> None:
    """A layer rule that returns two norms for each example is rejected."""
    monkeypatch.setattr(LinearGradients, "norms", lambda self: row_norms(self.inputs.view(10, -1)))
    engine = GradientEngine(nn.Sequential(nn.Linear(4, 3)), cross_entropy)
    with pytest.raises(OsoError, match="one row each"):
        OneRun(
            engine, torch.rand(engine.size), torch.rand(5, 4), torch.zeros(5, dtype=torch.long)
        ).norms()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_engine_reduced_loss_rejected(reduction: str) -> None:
    """Gradients of a mean loss are B times too small, so that no example would be clipped."""
    loss = partial(nn.functional.cross_entropy, reduction=reduction)
    engine = GradientEngine(nn.Sequential(nn.Linear(3, 3)), loss)
    with pytest.raises(OsoError, match=r"loss: shape \[\] for 5 examples"):
        OneRun(
            engine, torch.rand(engine.size), torch.rand(5, 3), torch.zeros(5, dtype=torch.long)
        ).norms()


@pytest.mark.parametrize("share", [1.0, 1e-6])
def test_check_independence_slight_mixing_rejected(share: float) -> None:
    """Even with a share of 1e-6, an example with huge inputs would change other gradients."""

    class Little(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x + share * x.mean(dim=0))

    engine = GradientEngine(Little(), cross_entropy)
    with pytest.raises(OsoError, match="mixes examples"):
        check_independence(engine, torch.rand(engine.size), torch.zeros(0, 3), LABELS)


class Calling(nn.Module):
    """Calls a layer as it is told to."""

    def __init__(self, layer: nn.Module, call) -> None:
        super().__init__()
        self.layer, self.call, self.last = layer, call, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.call(self.layer, x).sum(dim=1))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor, y: Tensor | None = None):
        return (x * self.scale, x) if y is None else x * self.scale + y


class OwnEmbedding(nn.Embedding):
    """Of a kind that this package does not know; its options do the same harm."""


class OwnBag(nn.EmbeddingBag):
    pass


class OwnAttention(nn.MultiheadAttention):
    pass


class OwnGRU(nn.GRU):
    pass


def attention() -> nn.Module:
    return nn.MultiheadAttention(4, 2, batch_first=True)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Embedding(5, 4, max_norm=1.0), "'0' is an Embedding with max_norm; use max_norm=None"),
        (nn.Embedding(5, 4, scale_grad_by_freq=True), "Embedding with scale_grad_by_freq"),
        (nn.Embedding(5, 4, sparse=True), "Embedding with sparse"),
        (nn.EmbeddingBag(5, 4, max_norm=1.0), "EmbeddingBag with max_norm"),
        (nn.EmbeddingBag(5, 4, scale_grad_by_freq=True), "EmbeddingBag with scale_grad_by_freq"),
        (OwnEmbedding(5, 4, max_norm=1.0), "OwnEmbedding with max_norm"),
        (OwnEmbedding(5, 4, scale_grad_by_freq=True), "OwnEmbedding with scale_grad_by_freq"),
        (OwnBag(5, 4, max_norm=1.0), "OwnBag with max_norm"),
        (OwnAttention(4, 2), "OwnAttention with batch_first=False"),
        (OwnGRU(4, 4), "OwnGRU with batch_first=False"),
        (nn.MultiheadAttention(4, 2), "'0' is a MultiheadAttention .* use batch_first=True"),
        (nn.GRU(4, 4), "GRU with batch_first=False"),
    ],
)
def test_check_layer_unsupported_option_rejected(layer, message) -> None:
    with pytest.raises(OsoError, match=message):
        GradientEngine(nn.Sequential(layer), cross_entropy)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Calling(Pair(), lambda layer, x: layer(x, x)), "Pair is called with 2 arguments"),
        (Calling(Pair(), lambda layer, x: layer(x)[0]), "Pair returns a tuple"),
        (Calling(attention(), lambda a, x: a(x[0], x[0], x[0])[0][None]), "one row each"),
        (
            Calling(nn.LSTM(4, 4, batch_first=True), lambda layer, x: layer(x[:, 0])[0][:, None]),
            "LSTM is called with .*; must be a batch of padded sequences",
        ),
        (
            Calling(nn.Embedding(6, 4), lambda at, x: x + at(torch.arange(6))),
            "one row each",
        ),
    ],
)
def test_engine_unsupported_call_rejected(model, message) -> None:
    """One case embeds positions without a batch axis: its gradient is a sum over all examples."""
    engine = GradientEngine(model, cross_entropy)
    with pytest.raises(OsoError, match=message):
        OneRun(engine, torch.rand(engine.size), torch.rand(5, 6, 4), torch.zeros(5).long()).norms()


@pytest.mark.parametrize("batch", [6, 3, 7])
def test_check_independence_unbatched_places_rejected(batch) -> None:
    places = nn.Embedding(batch, 4)
    engine = GradientEngine(
        Calling(places, lambda at, x: x + at(torch.arange(batch))), cross_entropy
    )
    flat = torch.rand(engine.size, dtype=torch.double)
    with pytest.raises(OsoError, match=r"^model: "):
        check_independence(engine, flat, torch.zeros(0, batch, 4), torch.zeros(0).long())


def test_check_independence_shared_mask_accepted() -> None:
    """The attention mask has as many rows as the batch has examples, but no row per example."""
    mask = torch.full((3, 3), -1e9).triu(1)
    model = Calling(attention(), lambda a, x: a(x, x, x, attn_mask=mask, need_weights=False)[0])
    engine = GradientEngine(model.double(), cross_entropy)
    flat = torch.randn(engine.size, dtype=torch.double)
    check_independence(engine, flat, torch.zeros(0, 3, 4), torch.zeros(0).long())


def inside(layer: nn.Module, depth: int) -> nn.Module:
    """The layer, so many modules below the model."""
    for _ in range(depth):
        layer = nn.ModuleDict({"block": nn.ModuleList([layer])})
    return nn.ModuleList([nn.Linear(4, 4), layer])


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (lambda: nn.Embedding(5, 4, max_norm=1.0), "is an Embedding with max_norm"),
        (lambda: nn.BatchNorm1d(4), "is a BatchNorm1d, which mixes examples"),
        (lambda: nn.GRU(4, 4), "is a GRU with batch_first=False"),
    ],
)
def test_check_layer_nested_option_rejected(layer, said: str, depth: int, frozen: bool) -> None:
    made = inside(layer().requires_grad_(not frozen), depth)
    name = ".".join(["1", *["block.0"] * depth])
    with pytest.raises(OsoError, match=f"layer '{name}' {said}".replace(".", r"\.")):
        GradientEngine(made, cross_entropy)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.attention_out = nn.Linear(4, 4)
        self.attention2 = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = self.attention_out(self.attention(x, x, x)[0])
        return self.attention2(x, x, x)[0].mean(dim=1)


def test_engine_common_name_prefix_kept() -> None:
    engine = GradientEngine(Two(), nn.CrossEntropyLoss(reduction="none"))
    assert list(engine.layers) == ["attention", "attention_out", "attention2"]
