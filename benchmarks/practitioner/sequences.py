"""Networks for sequences of words."""

import torch
import torch.nn.functional as F  # noqa: N812
from case import Case, classes
from torch import Tensor, nn
from transformer import Block

VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN, BLOCKS, CLASSES = 5_700, 32, 128, 4, 256, 2, 4
PADDING = 0


class Lstm(nn.Module):
    def __init__(self, recurrent: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(1000, 32), nn.Linear(64, 2)
        self.recurrent = recurrent(32, 64, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.recurrent(self.words(words))[0].mean(dim=1))


def lstm() -> Case:
    """An Embedding, an LSTM, a Linear layer. Opacus has its own LSTM (`DPLSTM`)."""
    return Case(Lstm(), torch.randint(1000, (4000, 20)), classes(4000, 2))


def gru() -> Case:
    """The same with a GRU (`DPGRU`)."""
    return Case(Lstm(nn.GRU), torch.randint(1000, (4000, 20)), classes(4000, 2))


class Tied(nn.Module):
    """A language model whose head is the table of its words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mixing = nn.Embedding(1000, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 1000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mixing(self.words(words))))


def word_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)


def tied_language_model() -> Case:
    """Tied weights, texts of 20 words."""
    words = torch.randint(1000, (4000, 20))
    return Case(Tied(), words, words.roll(-1, dims=1), word_loss)


class Encoder(nn.Module):
    """torch's own encoder layers on words and learned places."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(5000, 128), nn.Embedding(LENGTH, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 4)

    def forward(self, words: Tensor) -> Tensor:
        places = self.places(torch.arange(words.shape[1]))
        mask = words == PADDING
        mask = mask & (torch.arange(words.shape[1]) > 0)
        x = self.layers(self.words(words) + places, src_key_padding_mask=mask)
        return self.head(x.mean(dim=1))


def encoder() -> Case:
    """Two encoder layers of torch, no dropout."""
    return Case(Encoder(0.0), torch.randint(5000, (4000, LENGTH)), classes(4000, 4), batch_size=32)


def encoder_dropout() -> Case:
    """The same with dropout 0.1."""
    return Case(Encoder(0.1), torch.randint(5000, (4000, LENGTH)), classes(4000, 4), batch_size=32)


class TextTransformer(nn.Module):
    """words, int64 [N, T] -> [N, classes]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, HIDDEN) for _ in range(BLOCKS))
        self.after, self.classes = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        present = words != PADDING
        # A row for each example: Opacus takes no other.
        places = torch.arange(words.shape[1], device=words.device).expand(words.shape).contiguous()
        x = self.words(words) + self.places(places)
        for block in self.blocks:
            x = block(x, present)
        weights = present / present.sum(dim=1, keepdim=True).clamp(min=1)
        return self.classes((self.after(x) * weights[..., None]).sum(dim=1))


def transformer() -> Case:
    """A million parameters, attention written with Linear layers; texts of up to 32 words."""
    words = torch.randint(1, VOCABULARY, (8000, LENGTH))
    lengths = torch.randint(8, LENGTH + 1, (8000, 1))
    words = words.masked_fill(torch.arange(LENGTH) >= lengths, PADDING)
    return Case(TextTransformer(), words, classes(8000, CLASSES), batch_size=256)


def audio() -> Case:
    """A 1-d CNN on audio of 4,000 samples."""
    layers: list[nn.Module] = []
    for before, after in ((1, 32), (32, 64), (64, 64)):
        layers += [nn.Conv1d(before, after, 9, stride=4), nn.GroupNorm(8, after), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 10)]
    return Case(nn.Sequential(*layers), torch.randn(1000, 1, 4000), classes(1000, 10))
