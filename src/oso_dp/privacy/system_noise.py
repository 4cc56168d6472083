"""Adds normal noise that nobody can predict or repeat, from ChaCha20's words, on any device.

A floating-point number may reveal by its lowest bits which sum it is the noisy version of (Mironov,
On Significance of the Least Significant Bits for Differential Privacy, CCS 2012). So a noisy sum is
rounded to a multiple of a power of two, about a thousandth of the noise's deviation. With x the sum
and z the noise, both float64, what is returned is a function of the exact value of x + z, since
adding in float64 rounds that value: post-processing. It remains that z is not exactly normal:

- A cell of the grid gets the probability of a normal number within a relative error of about
  |z| 2^-38, as z has rounding errors of a few 2^-53 and a cell is 2^-10 to 2^-11 deviations wide.
- A number is at most 9.4 deviations from 0: the tails beyond have a probability of 5e-21.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oso_dp.privacy.chacha20 import draw_words

# Numbers per key. On a CPU: what its cache holds, and enough for torch's threads to share.
_HOST_BLOCK, _DEVICE_BLOCK = 2**16, 2**20
_GRID = 2.0**-10  # of the deviation; the variance of a number grows by a ten-millionth


def add_noise(totals: Tensor, deviations: Tensor) -> Tensor:
    """Each total plus normal noise, rounded to the grid: [R, P], in the dtype of the totals.

    deviations: float64 [R], on the device of the totals. A key for each block of numbers.
    """
    noised = torch.empty_like(totals)
    if noised.numel() == 0:
        return noised
    runs, size = totals.shape
    most = _HOST_BLOCK if totals.device.type == "cpu" else _DEVICE_BLOCK
    rows, columns = max(1, most // size), min(size, most)
    pairs = -(-min(rows, runs) * columns // 2)
    words = torch.empty(2 * pairs, dtype=torch.int64, device=totals.device)
    values = torch.empty(3 * pairs, dtype=torch.float64, device=totals.device)
    deviations = deviations[:, None]
    spacing = grid_spacing(deviations)
    for start in range(0, runs, rows):
        part = slice(start, start + rows)
        blocks = totals[part].split(columns, dim=1), noised[part].split(columns, dim=1)
        for exact, out in zip(*blocks, strict=True):
            numbers = _draw_normals(exact.numel(), words, values).view(exact.shape)
            numbers.mul_(deviations[part]).add_(exact)
            out.copy_(round_to_grid(numbers, spacing[part]))
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


def _draw_normals(count: int, words: Tensor, values: Tensor) -> Tensor:
    """Standard normal numbers, float64 [count], in a part of `values`, from one key."""
    pairs = -(-count // 2)
    drawn = words[: 2 * pairs].view(2, pairs)
    draw_words(drawn)
    return box_muller(drawn, values[: 3 * pairs].view(3, pairs))[:count]


def box_muller(words: Tensor, values: Tensor) -> Tensor:
    """Independent standard normal numbers, float64 [2 n], from random words, int64 [2, n].

    Box and Muller's transform makes two of a radius and an angle. A radius is at most 9.4, since
    its tail has 64 binary digits.

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
