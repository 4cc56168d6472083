"""Networks for sequences of words."""

import torch
import torch.nn.functional as F  # noqa: N812
from case import Case, classes
from torch import Tensor, nn

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


class Block(nn.Module):
    """Attention over the words that are there, then two layers; each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.mixed = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """x [N, T, D], present bool [N, T]."""
        seen = self.before(x)
        heads = (
            layer(seen).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=present[:, None, None])
        x = x + self.mixed(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class TextTransformer(nn.Module):
    """words, int64 [N, T] -> [N, classes]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
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
