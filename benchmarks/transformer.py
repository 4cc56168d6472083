"""A transformer of one million parameters, of layers that every peer supports."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

ROWS, PIXELS = 28, 28
WIDTH, HEADS, HIDDEN, BLOCKS, CLASSES = 128, 4, 512, 5, 10


class Block(nn.Module):
    """Self-attention, then two layers; each is added to its input."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.mixed = nn.Linear(width, width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """x [N, T, D]; present: which tokens are no padding, bool [N, T]."""
        seen = self.before(x)
        heads = (
            layer(seen).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = None if present is None else present[:, None, None]
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask)
        x = x + self.mixed(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class ImageTransformer(nn.Module):
    """Classifies an image, [N, 1, 28, 28], whose rows are the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(PIXELS + ROWS, WIDTH)  # a row, and which one it is
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS, HIDDEN) for _ in range(BLOCKS))
        self.after, self.classes = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(0, 1)
        places = torch.eye(ROWS, dtype=rows.dtype, device=rows.device).expand(len(rows), -1, -1)
        x = self.enter(torch.cat([rows, places], dim=2))
        for block in self.blocks:
            x = block(x)
        return self.classes(self.after(x).mean(dim=1))
