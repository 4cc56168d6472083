"""A small transformer with a million parameters, and the AG News subset as token indices.

Attention is written with Linear layers on sequences, so that every layer has a gradient rule.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.data.ag_news_csv import parse_news, split_words
from oso_dp.data.download import obtain
from oso_dp.data.sources import AG_NEWS_PARTIAL

VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN, BLOCKS, CLASSES = 5_700, 32, 128, 4, 256, 2, 4
PADDING, UNKNOWN = 0, 1


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
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, words: Tensor) -> Tensor:
        present = words != PADDING
        # A row for each example: places that the batch shares would have one gradient for all.
        places = torch.arange(words.shape[1], device=words.device).expand(words.shape).contiguous()
        x = self.words(words) + self.places(places)
        for block in self.blocks:
            x = block(x, present)
        weights = present / present.sum(dim=1, keepdim=True).clamp(min=1)
        return self.classes((self.after(x) * weights[..., None]).sum(dim=1))


def fresh_transformer(seed: int = 0) -> TextTransformer:
    """The same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TextTransformer()


class Texts(NamedTuple):
    """Words int64 [n, T] and classes int64 [n], of both parts."""

    train_words: Tensor
    train_classes: Tensor
    test_words: Tensor
    test_classes: Tensor


def load_texts(folder: Path) -> Texts:
    """From a local folder as `oso data` takes it.

    The vocabulary has the most frequent words of the training texts and is treated as public. Use
    another source for texts that are private.
    """
    fetched = obtain(AG_NEWS_PARTIAL, folder, folder, parse_news)
    parts = [
        parse_news(fetched[file.name].content, fetched[file.name].origin)
        for file in AG_NEWS_PARTIAL.files
    ]
    split = [[split_words(text) for text in texts] for texts, _ in parts]
    counts = Counter(word for text in split[0] for word in text)
    common = [word for word, _ in counts.most_common(VOCABULARY - 2)]
    numbers = {word: number for number, word in enumerate(common, start=2)}
    arrays = []
    for texts, (_, classes) in zip(split, parts, strict=True):
        rows = np.full((len(texts), LENGTH), PADDING)
        for row, text in zip(rows, texts, strict=True):
            first = text[:LENGTH]
            row[: len(first)] = [numbers.get(word, UNKNOWN) for word in first]
        arrays += [torch.from_numpy(rows), torch.from_numpy(classes)]
    return Texts(*arrays)
