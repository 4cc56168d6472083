"""What cannot be tried is taken, and a warning says so; what mixes when it is tried is refused."""

import numpy as np
import pytest
import torch
from tests.opacus.helpers import MODES, QUIET, examples, make
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from oso_dp.errors import OsoError

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


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
        return {"inputs": torch.full((6,), float(index)), "targets": torch.tensor(index % 2)}


@pytest.mark.parametrize(
    "untried",
    [
        {"loader": DataLoader(Named(), batch_size=4)},
        {"loader": DataLoader(Arrays(), batch_size=4, collate_fn=lambda pairs: pairs)},
        {"batch_first": False},
    ],
)
def test_a_model_that_nobody_could_try_is_taken_with_a_warning(untried) -> None:
    with pytest.warns(UserWarning, match="not checked whether it mixes the examples"):
        make(model=Mixing(), **untried)


class Packed(nn.Module):
    """Takes sequences of several lengths, laid out one place after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, packed: PackedSequence) -> Tensor:
        padded, _ = pad_packed_sequence(packed, batch_first=True)
        return self.linear(padded.mean(dim=1))


@pytest.mark.filterwarnings("ignore:module. not checked whether")
@pytest.mark.parametrize("lengths", [[3, 2, 1], [9, 1], [1, 1, 1, 1], [2, 2, 2, 1, 1, 1]])
def test_packed_sequences_are_as_many_as_they_are_whatever_their_lengths(lengths) -> None:
    """As many as that, rows i must be: the number of places is another."""
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
def test_whichever_buffer_keeps_something_is_named(keeps: int) -> None:
    with pytest.raises(OsoError, match=f"changes buffer 'number {keeps}'"):
        make(model=Counting(keeps))


class OwnNorm(nn.BatchNorm1d):
    """Of a kind that nobody has a validator for."""


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("kind", [OwnNorm, nn.SyncBatchNorm])
def test_what_is_made_of_batch_norm_is_refused_by_name_also_where_nothing_is_tried(
    kind, tracks, affine
) -> None:
    norm = kind(2, affine=affine, track_running_stats=tracks)
    loader = DataLoader(Named(), batch_size=4)
    with pytest.raises(OsoError, match=rf"layer '1' \({kind.__name__}\): mixes the examples"):
        make(model=nn.Sequential(nn.Linear(6, 2), norm), loader=loader)


class Leaning(nn.Module):
    """Takes a small share of its neighbour along, beside as many units as are wanted."""

    def __init__(self, share: float, units: int) -> None:
        super().__init__()
        self.share = share
        self.first, self.second = nn.Linear(6, units), nn.Linear(units, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.first(inputs + self.share * inputs.roll(1, 0)).tanh())


@pytest.mark.parametrize(("share", "units"), [(1.0, 30_000), (1e-3, 5), (1e-4, 5)])
def test_a_model_that_mixes_a_little_or_is_large_is_refused(share, units) -> None:
    with pytest.raises(OsoError, match="an example's gradient in a batch differs from"):
        make(model=Leaning(share, units))


class Straight:
    """Each loss is that of its example alone; its gradient is that of all of them."""

    reduction = "mean"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        mean = losses.mean()
        losses = losses + mean - mean.detach()
        return losses if self.reduction == "none" else losses.mean()


def test_a_criterion_that_mixes_in_its_backward_pass_alone_is_refused() -> None:
    made = make(mode="ghost", criterion=Straight())
    with pytest.raises(OsoError, match="an example's loss depends on other examples"):
        made.step(*examples(count=4))
    assert made.optimizer.ledger.step_count == 0


class Turned(nn.Module):
    """Its second layer sees the next example in each row; its last layer starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.last.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh()
        return self.last(self.second(hidden.roll(1, 0)).tanh().roll(-1, 0))


@pytest.mark.parametrize("mode", MODES)
def test_layers_of_zeros_hide_nothing(mode: str) -> None:
    """No gradient reaches what stands before them, in the first step: a head, LoRA's B."""
    with pytest.raises(OsoError, match="an example's gradient in a batch differs from"):
        make(mode=mode, model=Turned())


class Half(nn.Module):
    """Calls a layer twice; the second call counts in no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.end = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.twice(inputs).tanh()
        self.aside = self.twice(hidden)
        return self.end(hidden)


@pytest.mark.filterwarnings("ignore:module. not checked whether")
@pytest.mark.parametrize("mode", MODES)
def test_a_call_without_its_backward_pass_is_told(mode: str) -> None:
    """Else the layer's gradient would be missing, and it would move by noise alone."""
    data = TensorDataset(*examples())
    loader = DataLoader(data, batch_size=12, collate_fn=lambda rows: default_collate(rows))
    with pytest.raises(OsoError, match="training mode has no backward pass"):
        make(mode=mode, model=Half(), loader=loader).step(*examples(count=4))
