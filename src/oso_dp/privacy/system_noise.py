"""Adds normal noise from ChaCha20 and rounds the sum to a grid, on any device.

The low bits of a floating-point sum can reveal the noiseless sum (Mironov, On Significance of the
Least Significant Bits for Differential Privacy, CCS 2012). Rounding to a power of two, 2^-11 to
2^-10 standard deviations, removes them; docs/internals/privacy.md, "Noise and rounding", has the
proof and the error bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from oso_dp.privacy.chacha20 import draw_words

# Numbers per key. On a CPU: what its cache holds, and enough for torch's threads to share.
_HOST_BLOCK, _DEVICE_BLOCK = 2**16, 2**20
_GRID = 2.0**-10  # of the deviation; the variance of a number grows by a ten-millionth


def add_noise(totals: Sequence[Tensor], deviations: Sequence[Tensor]) -> list[Tensor]:
    """Each total plus normal noise, rounded to the grid: [R, P], in the dtype of the total.

    deviations: of each total, float64 [R], on its device. All totals are on one device.
    """
    if not totals:
        return []
    numbers = _Normals(sum(total.numel() for total in totals), totals[0].device)
    spacings = grid_spacing(torch.stack(list(deviations))[..., None])
    noised = []
    for total, deviation, spacing in zip(totals, deviations, spacings, strict=True):
        result = torch.empty_like(total)
        for run, rows, columns in numbers.blocks(*total.shape):
            part = slice(run, run + rows)
            drawn = numbers.take(total[part, columns].shape)
            drawn.mul_(deviation[part, None]).add_(total[part, columns])
            result[part, columns] = round_to_grid(drawn, spacing[part])
        noised.append(result)
    return noised


def grid_spacing(deviations: Tensor) -> Tensor:
    """The largest powers of two that are at most `_GRID` of the deviations.

    Where there is no noise, one so small that nothing is rounded.
    """
    _, exponents = torch.frexp(deviations * _GRID)  # of a fraction in [1/2, 1)
    spacing = torch.ldexp(torch.ones_like(deviations), exponents - 1)
    return spacing.where(deviations > 0, 2.0**-200)


def round_to_grid(numbers: Tensor, spacing: Tensor) -> Tensor:
    """The nearest multiples of a power of two, in place; the scaling itself is exact."""
    return numbers.div_(spacing).round_().mul_(spacing)


class _Normals:
    """Yields `count` standard normal numbers, drawn in blocks, each with a new key."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.needed = count  # not taken yet
        self.block_size = _HOST_BLOCK if device.type == "cpu" else _DEVICE_BLOCK
        pairs = -(-min(count, self.block_size) // 2)
        self._words = torch.empty(2 * pairs, dtype=torch.int64, device=device)
        self._values = torch.empty(3 * pairs, dtype=torch.float64, device=device)
        self._drawn = self._values[:0]

    def blocks(self, runs: int, size: int) -> Iterator[tuple[int, int, slice]]:
        """Parts of [R, P] that a block has enough numbers for: the first run, how many, columns."""
        rows = max(1, self.block_size // max(1, size))
        for run in range(0, runs, rows):
            for start in range(0, size, self.block_size):
                yield run, rows, slice(start, start + self.block_size)

    def take(self, shape: Sequence[int]) -> Tensor:
        """The next numbers, float64, to be overwritten; those of the last call are lost."""
        count = math.prod(shape)
        if len(self._drawn) < count:  # what is left of a block is not used
            pairs = -(-min(self.block_size, self.needed) // 2)
            words = self._words[: 2 * pairs].view(2, pairs)
            draw_words(words)
            self._drawn = box_muller(words, self._values[: 3 * pairs].view(3, pairs))
        self.needed -= count
        taken, self._drawn = self._drawn[:count], self._drawn[count:]
        return taken.view(*shape)


def box_muller(words: Tensor, values: Tensor) -> Tensor:
    """Independent standard normal numbers, float64 [2 n], from random words, int64 [2, n].

    Box and Muller's transform makes two of a radius, at most `SYSTEM_NORMAL`, and an angle.

    Args:
        values: float64 [3, n], overwritten; the result is a part of it.
    """
    radius, angle, sine = values.unbind()
    radius.copy_(words[0]).abs_().add_(0.5).mul_(2.0**-63)  # a tail, in (0, 1]
    radius.log_().mul_(-2).sqrt_()
    angle.copy_(words[1]).mul_(math.pi * 2.0**-63)
    torch.sin(angle, out=sine)
    angle.cos_().mul_(radius)
    radius.mul_(sine)
    return values[:2].flatten()
