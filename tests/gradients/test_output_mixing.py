"""Models and losses that mix examples in some draws, for some values or in large batches alone."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from oso_dp import OsoError, check
from oso_dp.opacus import OnlinePrivacyEngine

INPUTS, LABELS = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
TOKENS = torch.zeros(4, 12, dtype=torch.int64)
WORDS = 5000
cross_entropy = nn.CrossEntropyLoss(reduction="none")
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG:UserWarning")


class Changed(nn.Module):
    """A layer of inputs that were changed in training."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(6, 3), change

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.change(inputs) if self.training else inputs)


class Cut(nn.Module):
    """Cuts a batch after its longest text."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.words, self.last, self.padding = nn.Embedding(WORDS, 4), nn.Linear(4, 3), padding

    def forward(self, tokens: Tensor) -> Tensor:
        longest = int((tokens != self.padding).sum(dim=1).max().clamp(min=1))
        return self.last(self.words(tokens[:, :longest]).mean(dim=1))


class Sorted(nn.Module):
    """Sorts a batch by length, and restores the order of its outputs."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.words, self.padding = nn.Embedding(WORDS, 4), padding
        self.hidden, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        order = (tokens != self.padding).sum(dim=1).argsort(descending=True, stable=True)
        return self.last(self.hidden(self.words(tokens[order])).mean(dim=1)[order.argsort()])


class CutSeries(nn.Module):
    """Cuts a batch of series, of which the last dimension or the one before is time."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer, self.last, self.dim = nn.LazyLinear(8), nn.Linear(8, 3), dim

    def forward(self, inputs: Tensor) -> Tensor:
        series = inputs.movedim(self.dim, 1)
        longest = int((series != 0).any(dim=2).sum(dim=1).max().clamp(min=1))
        return self.last(self.layer(series[:, :longest]).tanh().mean(dim=1))


def capacity(inputs: Tensor) -> Tensor:
    """An expert takes eight examples, the first ones of a batch."""
    chosen = inputs[:, 0] > 0
    kept = torch.where(chosen, chosen.cumsum(0), (~chosen).cumsum(0)) <= 8
    return inputs * (1 + kept[:, None])


def in_groups(inputs: Tensor) -> Tensor:
    groups = inputs.split(16)
    return torch.cat([one - one.mean(dim=0) if len(one) == 16 else one for one in groups])


MIXING = {
    "the batch's mean, in half of all calls": lambda x: x - x.mean(0) * (torch.rand(()) < 0.5),
    "the batch's mean, in a fifth of all calls": lambda x: x - x.mean(0) * (torch.rand(()) > 0.8),
    "the first in the last, in a fifth": lambda x: torch.cat(
        [x[:-1], x[-1:] + x[:1] * (torch.rand(()) > 0.8)]
    ),
    "a permutation of random numbers": lambda x: x + x[torch.rand(len(x)).argsort()],
    "a turn by a random number": lambda x: x.roll(int(torch.rand(()) * len(x)), 0),
    "the neighbour, for some examples": lambda x: torch.where(
        torch.rand(len(x), 1) < 0.5, x.roll(1, 0), x
    ),
    "groups of 16": in_groups,
    "experts of a capacity": capacity,
    "beside zeros": lambda x: x * len(x) / (x != 0).any(dim=1).sum().clamp(min=1),
    "beside a huge number": lambda x: x * (2 if x.abs().max() > 1e6 else 1),
}
APART = {
    "dropout": nn.Dropout(0.5),
    "noise": lambda x: x + torch.randn_like(x),
    "one draw for all examples": lambda x: x * (torch.rand(()) < 0.5),
    "examples left out": lambda x: x * (torch.rand(len(x), 1) < 0.8),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.3)),
}


def privately(model: nn.Module, inputs: Tensor) -> None:
    """The drop-in checks the model here."""
    data = torch.utils.data.TensorDataset(inputs, LABELS)
    OnlinePrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=2),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )


def require_ok(model: nn.Module, inputs: Tensor, loss: Callable, targets: Tensor) -> None:
    report = check(model, inputs, loss, targets)
    if not report.ok:
        raise OsoError(str(report))


@pytest.fixture(params=["train_private", "drop-in"])
def examine(request) -> Callable[[nn.Module, Tensor], None]:
    """Raises OsoError for a model that is not taken."""
    if request.param == "drop-in":
        return privately

    return lambda model, inputs: require_ok(model, inputs, cross_entropy, LABELS)


@pytest.mark.parametrize("change", MIXING.values(), ids=MIXING)
def test_output_mixing_rare_case_rejected(examine, change) -> None:
    with pytest.raises(OsoError, match="mixes examples"):
        examine(Changed(change), INPUTS)


@pytest.mark.parametrize("change", APART.values(), ids=APART)
def test_output_mixing_random_model_accepted(examine, change) -> None:
    examine(Changed(change), INPUTS)


@pytest.mark.parametrize("padding", [0, 1, 9, WORDS - 2, WORDS - 1])
def test_output_mixing_cut_batch_rejected(examine, padding: int) -> None:
    with pytest.raises(OsoError, match="mixes examples"):
        examine(Cut(padding), TOKENS)


@pytest.mark.parametrize("padding", [0, WORDS - 1])
def test_padded_inputs_sorted_batch_seen(padding: int) -> None:
    """The drop-in refuses it; `train_private` takes the whole model, example by example."""
    with pytest.raises(OsoError, match="differs from its gradient alone"):
        privately(Sorted(padding), TOKENS)
    report = check(Sorted(padding), TOKENS, cross_entropy, LABELS)
    assert report.ok
    assert {layer.outcome for layer in report.layers} == {"slow"}


@pytest.mark.parametrize("dim", [1, 2])
def test_padded_inputs_cut_series_rejected(examine, dim: int) -> None:
    model, series = CutSeries(dim), torch.randn(4, 6, 5)
    model(series)  # makes its lazy layer
    with pytest.raises(OsoError, match=r"an example's|example's gradient"):
        examine(model, series)


def test_output_mixing_any_tokens_accepted(examine) -> None:
    examine(Cut(WORDS), TOKENS)


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    """Weighs ones by their share of the batch's ones and zeros."""
    ones, zeros = (targets == 1).sum(), (targets == 0).sum()
    weight = torch.where(targets == 1, zeros / (ones + zeros).clamp(min=1), 1.0)
    losses = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return (weight * losses).mean(dim=1)


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = cross_entropy(outputs, targets)
    return losses * (losses >= losses.detach().topk(min(16, len(losses))).values[-1])


def over_valid(ignored: int) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(
            outputs, targets, reduction="none", ignore_index=ignored
        )
        return losses / (targets != ignored).float().mean()

    return loss


def over_largest(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets / targets.max().clamp(min=1)).square()


def rare(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none").flatten(1).mean(1)
    return losses * (1 + (targets == 2).float().mean())


def over_known(marker: float) -> Callable[[Tensor, Tensor], Tensor]:
    """A mean over the known labels of a batch; the marker stands for unknown ones."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        known = ~targets.isnan() if math.isnan(marker) else targets != marker
        targets = targets.where(known, 0.0).clamp(0, 1)
        losses = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return (losses * known).sum(dim=1) * known.numel() / known.sum().clamp(min=1)

    return loss


def over_words(outputs: Tensor, targets: Tensor) -> Tensor:
    """A mean over the words of a batch; padding is the last word."""
    kept = targets != outputs.shape[2] - 1
    losses = nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    return (losses * kept).sum(dim=1) * kept.numel() / kept.sum().clamp(min=1)


def last_doubled(outputs: Tensor, targets: Tensor) -> Tensor:
    """The last examples of a large batch count twice."""
    losses = cross_entropy(outputs, targets)
    return losses * (1 + (torch.arange(len(losses)) >= 100))


LANGUAGE_MODEL = nn.Sequential(nn.Embedding(WORDS, 4), nn.Linear(4, WORDS))
IMAGE = torch.zeros(4, 1, 3, 3), torch.zeros(4, 3, 3, dtype=torch.int64)
MIXING_LOSSES = {
    "weights of the batch's ones": (balanced, nn.Linear(6, 3), INPUTS, torch.zeros(4, 3)),
    "the 16 hardest": (hardest, nn.Linear(6, 3), INPUTS, LABELS),
    "targets over the largest": (over_largest, nn.Linear(6, 3), INPUTS, LABELS),
    "the last of a large batch": (last_doubled, nn.Linear(6, 3), INPUTS, LABELS),
    **{
        f"over known labels, {marker}": (
            over_known(marker),
            nn.Linear(6, 20),
            INPUTS,
            torch.zeros(4, 20),
        )
        for marker in (-1, -100, 255, math.nan)
    },
    "over words, padded by the last": (over_words, LANGUAGE_MODEL, TOKENS, TOKENS),
    "the share of a class": (rare, nn.Conv2d(1, 4, 1), *IMAGE),
    **{
        f"over those that are not {ignored}": (over_valid(ignored), nn.Linear(6, 3), INPUTS, LABELS)
        for ignored in (-100, -1, 255)
    },
}


@pytest.mark.parametrize("case", MIXING_LOSSES.values(), ids=MIXING_LOSSES)
def test_check_loss_target_mixing_rejected(case) -> None:
    loss, model, inputs, targets = case
    with pytest.raises(OsoError, match="loss: an example's loss differs between a batch of"):
        require_ok(model, inputs, loss, targets)


def test_check_loss_ctc_targets_within_classes() -> None:
    """For targets beyond its classes, the CTC loss reads out of bounds and ends the process."""

    given = []

    def ctc(outputs: Tensor, targets: Tensor) -> Tensor:
        given.append(targets)
        targets = targets.clamp(0, 5)
        lengths = torch.full((len(outputs),), 12), torch.full((len(outputs),), 3)
        likely = outputs.log_softmax(dim=2).transpose(0, 1)
        return nn.functional.ctc_loss(likely, targets, *lengths, reduction="none")

    model = nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 6))
    require_ok(model, TOKENS, ctc, torch.ones(4, 3, dtype=torch.int64))
    assert {int(one) for targets in given for one in targets.flatten()} <= {*range(6)}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_check_loss_targets_of_few_bits_accepted(dtype: torch.dtype) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets.long())

    assert check(nn.Linear(6, 3), INPUTS, loss, LABELS.to(dtype)).ok
    with pytest.raises(OsoError, match="differs between a batch of"):
        require_ok(
            nn.Linear(6, 3),
            INPUTS,
            lambda outputs, targets: over_valid(-1)(outputs, targets.char().long()),
            LABELS.to(dtype),
        )


@pytest.mark.parametrize("ignored", [-100, -1, 255])
def test_check_loss_ignored_targets_accepted(ignored: int) -> None:
    loss = nn.CrossEntropyLoss(reduction="none", ignore_index=ignored)
    assert check(nn.Linear(6, 3), INPUTS, loss, LABELS).ok
