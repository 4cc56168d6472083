"""Models as people write them: gradients as of each example alone, and nothing beyond the clip."""

import copy

import pytest
import torch
from tests.gradients.everyday_models import MODELS, Net, head, recurrent, rows, words
from tests.gradients.one_run import check_contributions
from torch import Tensor, nn

from oso_dp.diagnostics.signs import RecordingEngine
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_model
from oso_dp.gradients.forward_backward import Traits
from oso_dp.gradients.model_traits import find_traits
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import call_model, map_tensors, select

BATCH = 5


def prepare(name: str, dtype: torch.dtype, runs: int = 1, batch: int = BATCH):
    """The checked engine, parameters [R, P], inputs and targets [R, B, ...]."""
    case = MODELS[name]
    torch.manual_seed(3)
    engine = GradientEngine(case.build().to(dtype), case.loss)
    flats = 0.4 * torch.randn(runs, engine.size, dtype=dtype)
    inputs = map_tensors(
        lambda one: (one.to(dtype) if one.is_floating_point() else one).unflatten(0, (runs, batch)),
        case.inputs(runs * batch),
    )
    targets = torch.randint(2, (runs, batch, *case.targets))
    check_model(engine, flats[0], select(inputs, (0, slice(0))), targets[0, :0])
    return engine, flats, inputs, targets


def alone(engine: GradientEngine, flat: Tensor, inputs, targets: Tensor) -> Tensor:
    """Each example's gradient by ordinary differentiation of the model as it is, [B, P]."""
    gradients, model = [], copy.deepcopy(engine.model).requires_grad_(True)
    nn.utils.vector_to_parameters(flat, model.parameters())
    for row in range(len(targets)):
        outputs = call_model(model, select(inputs, slice(row, row + 1)))
        loss = engine.loss(outputs, targets[row : row + 1]).sum()
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradients.append(nn.utils.parameters_to_vector(parts))
    return torch.stack(gradients)


@pytest.mark.parametrize("name", MODELS)
def test_engine_gradients_match_single_examples(name: str) -> None:
    engine, flats, inputs, targets = prepare(name, torch.float64)
    assert engine.is_whole_model == MODELS[name].is_whole_model
    mine, right = (
        engine(flats, inputs, targets),
        alone(engine, flats[0], select(inputs, 0), targets[0]),
    )
    weights = torch.rand(1, 2, BATCH, dtype=torch.float64)
    close = {"rtol": 1e-9, "atol": 1e-9 * float(right.norm(dim=1).max())}
    torch.testing.assert_close(mine.norms()[0], right.norm(dim=1), **close)
    torch.testing.assert_close(mine.weighted_sums(weights)[0], weights[0] @ right, **close)
    present = torch.tensor([[True, False, True, True, False]])
    torch.testing.assert_close(mine.plain_sums(present)[0], right[present[0]].sum(0), **close)
    parts = right.split(list(engine.layer_sizes.values()), dim=1)
    for of_layer, part in zip(mine.layer_norms().values(), parts, strict=True):
        torch.testing.assert_close(of_layer[0].double(), part.norm(dim=1), **close)


@pytest.mark.parametrize("name", MODELS)
def test_engine_contribution_within_sensitivity(name: str) -> None:
    engine, flats, inputs, targets = prepare(name, torch.float32, runs=3, batch=3)
    check_contributions(engine(flats, inputs, targets), 3)


@pytest.mark.parametrize("name", MODELS)
def test_engine_views_gradients_averaged(name: str) -> None:
    views = 3
    engine, flats, inputs, targets = prepare(name, torch.float64, batch=BATCH * views)
    by_view = map_tensors(lambda one: one.unflatten(1, (BATCH, views)), inputs)
    first = targets[:, ::views]
    every = first[0].repeat_interleave(views, dim=0)
    right = alone(engine, flats[0], select(inputs, 0), every).unflatten(0, (BATCH, views)).mean(1)
    mine = engine(flats, by_view, first, views=views)
    close = {"rtol": 1e-9, "atol": 1e-9 * float(right.norm(dim=1).max())}
    torch.testing.assert_close(mine.norms()[0], right.norm(dim=1), **close)
    weights = torch.rand(1, 2, BATCH, dtype=torch.float64)
    torch.testing.assert_close(mine.weighted_sums(weights)[0], weights[0] @ right, **close)
    present = torch.tensor([[True, False, True, True, False]])
    torch.testing.assert_close(mine.plain_sums(present)[0], right[present[0]].sum(0), **close)


@pytest.mark.parametrize(
    "name",
    [
        *("a layer called twice", "tied language model", "class token and places", "gru"),
        *("places without a batch", "cross attention", "two inputs", "a dictionary in and out"),
        "a table used outside its layer",
    ],
)
def test_engine_chunks_runs_match_alone(name: str, monkeypatch) -> None:
    """Each run has its own parameters, and each chunk its own part of every input."""
    engine, flats, inputs, targets = prepare(name, torch.float64, runs=2)
    monkeypatch.setattr(GradientEngine, "chunk_size", lambda self, inputs, views=1: 2)
    mine, weights = engine(flats, inputs, targets), torch.rand(2, 2, BATCH, dtype=torch.float64)
    sums = mine.weighted_sums(weights)
    for run, flat in enumerate(flats):
        right = alone(engine, flat, select(inputs, run), targets[run])
        torch.testing.assert_close(mine.norms()[run], right.norm(dim=1))
        torch.testing.assert_close(sums[run], weights[run] @ right)


@pytest.mark.parametrize("name", ["tied language model", "places without a batch", "gru"])
def test_engine_absent_example_dropped(name: str) -> None:
    engine, flats, inputs, targets = prepare(name, torch.float64)
    absent = torch.tensor([[False, True, False, False, False]])
    mine = engine(flats, inputs, targets, absent)
    right = alone(engine, flats[0], select(inputs, 0), targets[0])
    weights = torch.ones(1, 1, BATCH, dtype=torch.float64)
    torch.testing.assert_close(mine.weighted_sums(weights)[0, 0], right[[0, 2, 3, 4]].sum(0))
    assert mine.norms()[0, 1] == torch.inf


DROPPING = {
    "dropout": lambda: Net(
        lambda n, x: n.last(n.drop(n.a(x)).mean(1)),
        a=nn.Linear(4, 4),
        drop=nn.Dropout(0.4),
        last=head(),
    ),
    "dropped channels": lambda: Net(
        lambda n, x: n.last(n.drop(n.a(x)).mean(1)),
        a=nn.Linear(4, 4),
        drop=nn.Dropout1d(0.4),
        last=head(),
    ),
    "alpha dropout": lambda: Net(
        lambda n, x: n.last(n.drop(n.a(x)).mean(1)),
        a=nn.Linear(4, 4),
        drop=nn.AlphaDropout(0.4),
        last=head(),
    ),
    "noise on the inputs": lambda: Net(
        lambda n, x: n.last((x + torch.randn_like(x) * torch.rand(len(x), 1, 1)).mean(1)),
        last=head(),
    ),
    "one mask for all": lambda: Net(
        lambda n, x: n.last((n.a(x) * (torch.rand(1, 1, 4) < 0.6)).mean(1)),
        a=nn.Linear(4, 4),
        last=head(),
    ),
    "encoder": lambda: Net(
        lambda n, x: n.last(n.layer(x).mean(1)),
        layer=nn.TransformerEncoderLayer(4, 2, 5, 0.3, batch_first=True),
        last=head(),
    ),
    "attention without weights": lambda: Net(
        lambda n, x: n.last(n.layer(x, x, x, need_weights=False)[0].mean(1)),
        layer=nn.MultiheadAttention(4, 2, 0.3, batch_first=True),
        last=head(),
    ),
    "recurrent": lambda: recurrent(nn.LSTM, dropout=0.3),
}


def made_random(build, dtype: torch.dtype):
    torch.manual_seed(3)
    engine = GradientEngine(build().to(dtype), nn.CrossEntropyLoss(reduction="none"))
    flat = 0.4 * torch.randn(engine.size, dtype=dtype)
    inputs, targets = rows(BATCH).to(dtype), torch.randint(2, (BATCH,))
    check_model(engine, flat, inputs[:0], targets[:0])
    return engine, flat, inputs, targets


@pytest.mark.parametrize("name", DROPPING)
def test_engine_seed_determines_random_masks(name: str) -> None:
    """Losses, norms and sums use the same masks, and the global random state does not change."""
    engine, flat, inputs, targets = made_random(DROPPING[name], torch.float64)
    assert engine.traits.draws_random
    assert not engine.is_whole_model
    at = flat.clone().requires_grad_(True)
    with seeded(7, flat.device):
        losses = engine.loss(engine.outputs(at, inputs), targets)
    right = torch.stack([torch.autograd.grad(one, at, retain_graph=True)[0] for one in losses])
    weights = torch.rand(1, 2, BATCH, dtype=torch.float64)
    before = torch.get_rng_state()
    mine = engine(flat[None], inputs[None], targets[None], seed=7)
    torch.testing.assert_close(mine.norms()[0], right.norm(dim=1))
    torch.testing.assert_close(mine.weighted_sums(weights)[0], weights[0] @ right)
    present = torch.tensor([[True, False, True, True, False]])
    torch.testing.assert_close(mine.plain_sums(present)[0], right[present[0]].sum(dim=0))
    assert torch.equal(torch.get_rng_state(), before)
    other = engine(flat[None], inputs[None], targets[None], seed=8)
    assert not torch.allclose(other.norms(), mine.norms())


@pytest.mark.parametrize("name", DROPPING)
def test_engine_outputs_match_eval_mode(name: str) -> None:
    engine, flat, inputs, _ = made_random(DROPPING[name], torch.float64)
    model = copy.deepcopy(engine.model).eval()
    nn.utils.vector_to_parameters(flat, model.parameters())
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = model(inputs)
        torch.manual_seed(1)
        found = engine.outputs(flat, inputs, training=False)
    torch.testing.assert_close(found, wanted)
    assert any(layer.training for layer in engine.model.modules())


class Mixing(nn.Module):
    """Random, and takes a share of the neighbour along."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.drop = share, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) + self.share * x.roll(1, 0)


class DropInside(nn.Linear):
    """A layer of a kind of its own that draws while it multiplies."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5)


def around(layer: nn.Module) -> Net:
    return Net(
        lambda n, x: n.last(n.layer(n.a(x)).mean(1)), a=nn.Linear(4, 4), layer=layer, last=head()
    )


class TwoTensors(nn.Module):
    """Attention's keys have a bias whose gradient is nothing but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.keys, self.drop = nn.Bilinear(4, 4, 4), nn.Linear(4, 4), nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(x @ self.keys(x).transpose(1, 2), dim=2)
        return self.drop(self.both(weights @ x, x))


class Branching(TwoTensors):
    """Values decide, which torch cannot compute for several examples at once."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.isfinite().all() else x


class TimeFirst(nn.Module):
    def __init__(self, mixing: float = 0.0) -> None:
        super().__init__()
        self.inner, self.drop, self.mixing = nn.Linear(4, 4), nn.Dropout(0.4), mixing

    def forward(self, x: Tensor) -> Tensor:
        made = self.inner(x.transpose(0, 1)).transpose(0, 1)
        return self.drop(made + self.mixing * made.roll(1, 0))


class BranchInside(DropInside):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.isfinite().all() else x


class Windows(nn.Module):
    """Its layer's rows are windows of the examples, as Swin's; each is dropped by itself."""

    def __init__(self, mixing: float = 0.0, always: bool = False) -> None:
        super().__init__()
        self.inner, self.drop, self.mixing = nn.Linear(4, 4), nn.Dropout(0.4), mixing
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        rows = self.drop(self.inner(x.unflatten(1, (3, 2)).flatten(0, 1)))
        if self.always:
            rows = rows * torch.rand_like(rows)
        return rows.unflatten(0, (-1, 3)).flatten(1, 2) + self.mixing * x.roll(1, 0)


WHOLE = {
    "windows": lambda: around(Windows()),
    "inside a layer": lambda: around(DropInside(4, 4)),
    "branching inside a layer": lambda: around(BranchInside(4, 4)),
    "two tensors": lambda: around(TwoTensors()),
    "branching": lambda: around(Branching()),
    "time first": lambda: around(TimeFirst()),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_model_seed_determines_random_masks(name: str) -> None:
    """Each example has a mask of its own, for its norm and in the sums."""
    engine, flat, inputs, targets = made_random(WHOLE[name], torch.float64)
    assert engine.traits.draws_random
    assert engine.is_whole_model
    before = torch.get_rng_state()
    same = inputs[:1].expand_as(inputs)
    mine = engine(flat[None], same[None], targets[:1].expand(1, BATCH), seed=7)
    norms = mine.norms()[0]
    each = torch.eye(BATCH, dtype=torch.float64)[None]
    torch.testing.assert_close(mine.weighted_sums(each)[0].norm(dim=1), norms)
    assert len(set(norms.tolist())) == BATCH
    again = engine(flat[None], same[None], targets[:1].expand(1, BATCH), seed=7)
    assert torch.equal(again.norms(), mine.norms())
    other = engine(flat[None], same[None], targets[:1].expand(1, BATCH), seed=8)
    assert not set(other.norms()[0].tolist()) & set(norms.tolist())
    assert torch.equal(torch.get_rng_state(), before)


def test_whole_model_masks_unmoved_by_other_examples_draws() -> None:
    """One example that draws more numbers does not change what the others draw."""
    net = Net(lambda n, x: n.last(n.drop(x) if x.sum() < 9e9 else n.drop(n.drop(x))), last=head())
    net.drop = nn.Dropout(0.4)
    engine = GradientEngine(
        net.double(), nn.CrossEntropyLoss(reduction="none"), is_whole_model=True
    )
    engine.traits = Traits(draws_random=True)
    inputs, targets = torch.rand(1, 3, 4, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.int64)
    flat = torch.rand(1, engine.size, dtype=torch.float64)
    mine = engine(flat, inputs, targets, seed=1).norms()
    inputs[0, 0] = 9e9
    torch.testing.assert_close(engine(flat, inputs, targets, seed=1).norms()[0, 1:], mine[0, 1:])


@pytest.mark.parametrize(
    "layer",
    [
        *(Mixing(1.0), Mixing(1e-6), TimeFirst(1.0), TimeFirst(1e-6)),
        *(Windows(1.0), Windows(1e-6), Windows(always=True)),
    ],
)
def test_check_model_mixing_with_dropout_rejected(layer: nn.Module) -> None:
    engine = GradientEngine(around(layer), nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(OsoError, match=r"^model: .* mixes examples"):
        check_model(engine, torch.rand(engine.size), rows(0), torch.zeros(0, dtype=torch.int64))
    assert not engine.is_whole_model


def test_check_model_foreign_randomness_rejected() -> None:
    import random

    net = Net(lambda n, x: n.last(x.mean(1) * random.random()), last=head())
    engine = GradientEngine(net, nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(OsoError, match="differs between calls; it may draw random numbers from"):
        check_model(engine, torch.rand(engine.size), rows(0), torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize("batch", [6, 5, 3, 2])
def test_engine_shared_places_match_alone(batch: int) -> None:
    """Six positions without a batch axis are shared by all examples, also in a batch of six."""
    engine, flats, inputs, targets = prepare("places without a batch", torch.float64, batch=batch)
    right = alone(engine, flats[0], select(inputs, 0), targets[0])
    torch.testing.assert_close(engine(flats, inputs, targets).norms()[0], right.norm(dim=1))


class Skipping(nn.Module):
    """Reads its places only where a word is not 0, and then its words from the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(11, 4), head()

    def forward(self, words: Tensor) -> Tensor:
        places = 0.0 if words.any() else self.table(torch.arange(words.shape[1]))
        return self.last((places + self.table(words)).tanh().mean(1))


def test_engine_example_call_not_shared() -> None:
    """The first call of the table reads positions or words, depending on the words of the batch."""
    engine = GradientEngine(Skipping().double(), nn.CrossEntropyLoss(reduction="none"))
    flat = torch.randn(engine.size, dtype=torch.float64)
    engine.traits = find_traits(engine, flat, words(0))
    assert engine.traits.shared_rows == {("table", 0, torch.Size([6]))}
    given, targets = words(BATCH).clamp(min=1), torch.randint(2, (BATCH,))
    mine = engine(flat[None], given[None], targets[None])
    torch.testing.assert_close(mine.norms()[0], alone(engine, flat, given, targets).norm(dim=1))


def test_find_traits_everyday_models_recognised() -> None:
    def traits(name: str):
        case = MODELS[name]
        engine = GradientEngine(case.build(), case.loss)
        return find_traits(engine, torch.rand(engine.size), case.inputs(0))

    assert traits("one row of places").shared_rows == {("places", 0, torch.Size([1, 6]))}
    assert traits("changes outputs in place").changed_outputs == {"a", "b"}
    for plain in ("tied linear layers", "time before the examples"):
        assert traits(plain) == Traits()


def test_find_traits_example_words_unshared() -> None:
    engine, *_ = prepare("an embedding called twice", torch.float64)
    assert not engine.traits.shared_rows
    assert words(0).shape == (0, 6)


def test_recording_engine_takes_whole_model() -> None:
    engine = RecordingEngine(GradientEngine(head(), nn.CrossEntropyLoss(reduction="none")))
    engine.take_whole_model()
    assert engine.is_whole_model
    assert list(engine.layers) == [""]
