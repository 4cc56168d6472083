"""Models that mix examples, or change what is released, are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.opacus.helpers import (
    NOT_TRIED,
    QUIET,
    examples,
    loader_of,
    make,
    refused,
    untried_loader,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_sequence,
    pad_packed_sequence,
)
from torch.utils.data import DataLoader, Dataset

pytestmark = [pytest.mark.filterwarnings(text) for text in (*QUIET, NOT_TRIED)]


MIXES = "an example's gradient in a batch differs from"


class Mixing(nn.Module):
    """Subtracts the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs - inputs.mean(dim=0))


class Arrays(Dataset):
    """Pairs of a numpy array and a number."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full(6, index, dtype=np.float32), index % 2


class Named(Dataset):
    """Dictionaries, which do not say how the model is called."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"features": torch.full((6,), float(index)), "targets": torch.tensor(index % 2)}


class Called(Named):
    """Dictionaries of the model's arguments."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": torch.full((6,), float(index)), "targets": torch.tensor(index % 2)}


def test_check_independence_named_arguments_checked() -> None:
    refused(lambda: make(model=Mixing(), loader=DataLoader(Called(), batch_size=4)), MIXES)


@pytest.mark.parametrize(
    "untried",
    [
        {"loader": DataLoader(Named(), batch_size=4)},
        {"loader": DataLoader(Arrays(), batch_size=4, collate_fn=lambda pairs: pairs)},
        {"batch_first": False},
    ],
)
def test_check_independence_untried_model_warns(untried) -> None:
    with pytest.warns(UserWarning, match="not checked whether it mixes the examples.*: [a-zA-Z]"):
        make(model=Mixing(), **untried)


class Packed(nn.Module):
    """Takes sequences of several lengths, laid out one place after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, packed: PackedSequence) -> Tensor:
        padded, _ = pad_packed_sequence(packed, batch_first=True)
        return self.linear(padded.mean(dim=1))


@pytest.mark.parametrize("lengths", [[3, 2, 1], [9, 1], [1, 1, 1, 1], [2, 2, 2, 1, 1, 1]])
def test_model_hooks_packed_sequences_counted(lengths) -> None:
    made = make(model=Packed(), loader=DataLoader(Named(), batch_size=4))
    sequences = [torch.randn(length, 6) for length in lengths]
    outputs = made.model(pack_sequence(sequences))
    assert made.model.example_count == len(lengths)
    made.criterion(outputs, torch.zeros(len(lengths)).long()).backward()
    made.optimizer.step()
    assert made.optimizer.ledger.step_count == 1


class Counting(nn.Module):
    """Has several buffers, of which one keeps a sum of its examples."""

    def __init__(self, keeps: int) -> None:
        super().__init__()
        self.linear, self.keeps = nn.Linear(6, 3), f"number {keeps}"
        for number in range(3):
            self.register_buffer(f"number {number}", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        getattr(self, self.keeps).add_(inputs.detach().double().sum())
        return self.linear(inputs)


@pytest.mark.parametrize("keeps", range(3))
def test_check_independence_changed_buffer_rejected(keeps: int) -> None:
    refused(lambda: make(model=Counting(keeps)), f"changes buffer 'number {keeps}'")


class OwnNorm(nn.BatchNorm1d):
    """Of a kind that nobody has a validator for."""


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("kind", [OwnNorm, nn.SyncBatchNorm])
def test_check_module_batchnorm_kinds_rejected(kind, tracks, affine) -> None:
    norm = kind(2, affine=affine, track_running_stats=tracks)
    loader = DataLoader(Named(), batch_size=4)
    refused(
        lambda: make(model=nn.Sequential(nn.Linear(6, 2), norm), loader=loader),
        rf"layer '1' \({kind.__name__}\): mixes the examples",
    )


class Leaning(nn.Module):
    """Takes a small share of its neighbour along, beside as many units as are wanted."""

    def __init__(self, share: float, units: int) -> None:
        super().__init__()
        self.share = share
        self.first, self.second = nn.Linear(6, units), nn.Linear(units, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.first(inputs + self.share * inputs.roll(1, 0)).tanh())


@pytest.mark.parametrize(("share", "units"), [(1.0, 30_000), (1e-3, 5), (1e-4, 5)])
def test_check_independence_slight_mixing_rejected(share, units) -> None:
    refused(lambda: make(model=Leaning(share, units)), MIXES)


class Turned(nn.Module):
    """Its second layer sees the next example in each row; its last layer starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.last.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh()
        return self.last(self.second(hidden.roll(1, 0)).tanh().roll(-1, 0))


def test_check_independence_zero_layer_mixing_rejected(mode: str) -> None:
    """No gradient reaches what stands before them, in the first step: a head, LoRA's B."""
    refused(lambda: make(mode=mode, model=Turned()), MIXES)


class Half(nn.Module):
    """Calls a layer twice; the second call counts in no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.end = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.twice(inputs).tanh()
        self.aside = self.twice(hidden)
        return self.end(hidden)


def test_model_hooks_unused_layer_call_rejected(mode: str) -> None:
    """Else the layer's gradient would be missing, and it would move by noise alone."""
    loader = untried_loader(*examples())
    refused(
        lambda: make(mode=mode, model=Half(), loader=loader).step(*examples(count=4)),
        "training mode has no backward pass",
    )


WORDS, CLASSES = torch.randint(0, 9, (40, 5)), torch.randint(0, 3, (40,))


Write = Callable[[Tensor, Tensor], None]


def limited_rows(words: Tensor, table: Tensor) -> None:
    nn.functional.embedding(words, table, max_norm=0.5)


def added(words: Tensor, table: Tensor) -> None:
    with torch.no_grad():
        table.add_(words.double().mean())


def through_data(words: Tensor, table: Tensor) -> None:
    table.data[words] *= 0.9


class Words(nn.Module):
    """A table, and a forward pass that writes to it."""

    def __init__(self, write: Write, trained: bool) -> None:
        super().__init__()
        self.write = write
        self.table = nn.Parameter(torch.randn(20, 4), requires_grad=trained)
        self.head = nn.Linear(4, 3)

    def forward(self, words: Tensor) -> Tensor:
        self.write(words, self.table)
        return self.head(nn.functional.embedding(words, self.table).mean(1))


def nested(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Sequential(nn.Sequential(layer)))


@pytest.mark.parametrize(("trained", "depth"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("write", [limited_rows, added, through_data])
def test_check_independence_changed_parameter_rejected(write, depth, trained, mode) -> None:
    model = nested(Words(write, trained)) if depth else Words(write, trained)
    table = next(p for p in model.parameters() if len(p) == 20).detach().clone()
    refused(
        lambda: make(mode=mode, model=model, loader=loader_of(WORDS, CLASSES)),
        r"module: .* changes parameter '[\w.]*table'",
    )
    assert torch.equal(table, next(p for p in model.parameters() if len(p) == 20))


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("write", [limited_rows, added])
def test_model_hooks_changed_parameter_rejected(write, trained, mode) -> None:
    made = make(
        mode=mode,
        model=nested(Words(write, trained)),
        loader=untried_loader(WORDS, CLASSES, batch_size=8),
    )
    refused(lambda: made.model(WORDS[:4]), r"module: .* changes parameter '1\.0\.0\.table'")
    assert made.optimizer.ledger.step_count == 0


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_check_module_nested_max_norm_rejected(kind, mode) -> None:
    model = nn.Sequential(nn.ModuleList([nested(kind(20, 4, max_norm=1.0))]), nn.Linear(4, 3))
    refused(
        lambda: make(mode=mode, model=model, loader=untried_loader(WORDS, CLASSES, batch_size=8)),
        r"module: layer '0\.[\d.]+' \(.*\): max_norm changes",
    )


class Notes(torch.autograd.Function):
    """Passes a value on, and writes the size of its gradient into a tensor."""

    @staticmethod
    def forward(context: Any, value: Tensor, notes: Tensor) -> Tensor:
        context.notes = notes
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.notes.copy_(gradient.detach().abs().max())
        return gradient, None


class Noting(nn.Module):
    def __init__(self, parameter: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        if parameter:
            self.notes = nn.Parameter(torch.zeros(()), requires_grad=False)
        else:
            self.register_buffer("notes", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return Notes.apply(self.linear(inputs), self.notes)


@pytest.mark.parametrize("parameter", [True, False])
def test_check_unchanged_backward_write_rejected(parameter, mode) -> None:
    """Raw gradients would be in the weights that are released."""
    what = "parameter" if parameter else "buffer"
    refused(lambda: make(mode=mode, model=Noting(parameter)), f"changes {what} 'notes'")
    made = make(mode=mode, model=Noting(parameter), loader=untried_loader(*examples()))
    message = f"module: the backward pass changes {what} 'notes', bypassing clipping and noise"
    refused(lambda: made.step(*examples(count=5)), message, made)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Sequential(nn.LazyLinear(3)), "has no shape yet; call the model on an example"),
        (
            lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 3))),
            "computes its weight before its call; use torch.nn.utils.parametrizations",
        ),
        (
            lambda: torch.compile(nn.Linear(6, 3), backend="eager"),
            "module: compiled; call torch.compile on what make_private returns",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated")
def test_check_module_hidden_weights_rejected(model, message) -> None:
    optimizer = torch.optim.SGD(nn.Linear(6, 3).parameters(), lr=0.1)
    refused(
        lambda: make(model=model(), loader=loader_of(*examples()), optimizer=optimizer), message
    )


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_check_independence_leaves_other_devices_seeds(mode, monkeypatch) -> None:
    """A known seed of the GPUs would decide what a model draws there later."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    inputs, targets = examples(count=4)
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    made = make(mode=mode, model=model)
    outputs = made.model(inputs)
    before = torch.get_rng_state()
    made.criterion(outputs, targets)
    assert not seeds
    assert torch.equal(torch.get_rng_state(), before)
