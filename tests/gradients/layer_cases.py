"""Small models around each layer with a rule beyond the study's, or that goes by the fall-back."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from oso_dp.gradients import PRECISIONS, GradientEngine
from oso_dp.models.losses import cross_entropy

WORDS, WIDTH, CLASSES = 5, 4, 3


class Headed(nn.Module):
    """A layer on [N, T, ...], or words [N, T]; then the mean over places and a classifier."""

    def __init__(self, layer: nn.Module, width: int = WIDTH, places: int = 1) -> None:
        super().__init__()
        self.layer, self.places = layer, places
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layer(x)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        return self.last(outputs.tanh().mean(dim=self.places))


class Channels(Headed):
    """A layer on [N, C, T]."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer, places=2)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2))


class Reader(nn.Module):
    """Words and their places; attention that masks word 0, with its weights in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.at = nn.Embedding(WORDS, WIDTH), nn.Embedding(7, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device).expand(words.shape)
        x = self.words(words) + self.at(places)
        mask = torch.where(words == 0, -1.0, 0.0).to(x.dtype)
        seen, weights = self.attention(x, x, value=2 * x, key_padding_mask=mask)
        return self.last(seen.sum(dim=1) + weights.square().sum(dim=(1, 2))[:, None])


class Remembering(nn.Module):
    """A recurrent layer that begins with a state of each example's, and its last state."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layer = kind(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        state = self.first(x[:, 0]).unflatten(1, (2, WIDTH)).transpose(0, 1)
        if isinstance(self.layer, nn.LSTM):
            _, (state, cells) = self.layer(x, (state, 2 * state))
            return self.last(state[-1] + cells[0])
        return self.last(self.layer(x, hx=state)[1][-1])


class Scaled(nn.Module):
    """Multiplies by one learned number, a parameter without a dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    width: int = WIDTH  # of a row; 0: words
    kept: bool = True  # whether a rule holds the very numbers that it sums


CASES = {
    "sequence kernels": Case(lambda: Headed(nn.Linear(WIDTH, WIDTH))),
    "sequence factors": Case(lambda: Headed(nn.Linear(40, 50), 50), 40, kept=False),
    "sequence factors, no bias": Case(
        lambda: Headed(nn.Linear(40, 50, bias=False), 50), 40, kept=False
    ),
    "embedding": Case(lambda: Headed(nn.Embedding(WORDS, WIDTH)), 0),
    "embedding with padding": Case(lambda: Headed(nn.Embedding(WORDS, WIDTH, padding_idx=1)), 0),
    "embedding, padded by word 0": Case(
        lambda: Headed(nn.Embedding(WORDS, WIDTH, padding_idx=0)), 0
    ),
    "layer norm": Case(lambda: Headed(nn.LayerNorm(WIDTH))),
    "layer norm, no bias": Case(lambda: Headed(nn.LayerNorm(WIDTH, bias=False))),
    "group norm": Case(lambda: Channels(nn.GroupNorm(2, WIDTH))),
    "conv1d": Case(lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 3, padding=2, dilation=2))),
    "conv1d, stride": Case(lambda: Channels(nn.Conv1d(WIDTH, WIDTH, 2, 2, padding=1, bias=False))),
    "transposed conv1d": Case(
        lambda: Channels(nn.ConvTranspose1d(WIDTH, WIDTH, 3, 2, padding=1, output_padding=1))
    ),
    "one number": Case(lambda: Headed(Scaled())),
    "attention": Case(Reader, 0),
    "encoder layer": Case(
        lambda: Headed(nn.TransformerEncoderLayer(WIDTH, 2, 6, dropout=0.0, batch_first=True))
    ),
    "lstm": Case(lambda: Remembering(nn.LSTM)),
    "gru": Case(lambda: Remembering(nn.GRU)),
    "gru, the first layer": Case(lambda: Headed(nn.GRU(WIDTH, WIDTH, batch_first=True))),
}


class Given(NamedTuple):
    """Code, parameters [R, P], inputs [R, B, T, ...], targets [R, B]."""

    engine: GradientEngine
    flats: Tensor
    inputs: Tensor
    targets: Tensor


def prepare(
    name: str,
    dtype: torch.dtype = torch.float64,
    runs: int = 1,
    batch: int = 4,
    length: int = 7,
    precision: str = "float32",
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
) -> Given:
    case = CASES[name]
    torch.manual_seed(5)
    engine = GradientEngine(case.build().to(dtype), loss, PRECISIONS[precision])
    flats = 0.5 * torch.randn(runs, engine.size, dtype=dtype)
    shape = (runs, batch, length)
    inputs = (
        torch.randn(*shape, case.width, dtype=dtype)
        if case.width
        else torch.randint(WORDS, shape)  # seven of five words: some stand there twice
    )
    return Given(engine, flats, inputs, torch.randint(2, (runs, batch)))


def alone(given: Given) -> Tensor:
    """Each example's gradient by ordinary differentiation, in float64, [R, B, P]."""
    model, gradients = given.engine.model.double(), []
    for flat, inputs, targets in zip(*given[1:], strict=True):
        for x, y in zip(inputs, targets, strict=True):
            at = flat.double().requires_grad_(True)
            x = x.double() if x.is_floating_point() else x
            outputs = torch.func.functional_call(model, given.engine.parameters(at), (x[None],))
            loss = given.engine.loss(outputs, y[None]).sum()
            gradients.append(torch.autograd.grad(loss, at)[0])
    return torch.stack(gradients).unflatten(0, given.targets.shape)
