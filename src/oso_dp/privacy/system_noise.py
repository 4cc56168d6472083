"""Normal numbers that nobody can predict or repeat, from ChaCha20's words, on any device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oso_dp.privacy.chacha20 import draw_words

# Numbers per key. On a CPU: what its cache holds, and enough for torch's threads to share.
_HOST_BLOCK, _DEVICE_BLOCK = 2**16, 2**20


def draw_normals(count: int, device: torch.device) -> Tensor:
    """Standard normal numbers, float64 [count], with a new key for each block."""
    numbers = torch.empty(count, dtype=torch.float64, device=device)
    most = _HOST_BLOCK if device.type == "cpu" else _DEVICE_BLOCK
    blocks = max(1, math.ceil(count / most))
    size = 4 * max(1, math.ceil(count / (4 * blocks)))
    words = torch.empty(4, size, dtype=torch.int64, device=device)
    values = torch.empty(4, size, dtype=torch.float64, device=device)
    for part in numbers.split(size):
        draw_words(words)
        part.copy_(halved_sums(words, values)[: len(part)])
    return numbers


def halved_sums(words: Tensor, values: Tensor) -> Tensor:
    """Standard normal numbers, float64 [n], from random words, int64 [4, n].

    Each number is the sum of four independent normal numbers, halved. The low bits of a noisy sum
    may reveal which floating-point numbers a generator can return; an attack must then search four
    of them at once (Holohan and Braghin, Secure Random Sampling in Differential Privacy, ESORICS
    2021).

    Box and Muller's transform makes two independent normal numbers of a radius and an angle. They
    are added to different numbers, n/2 or n/4 places apart, so that the four of a number come from
    four radii and four angles. A radius is at most 9.4, since its tail has 64 binary digits, and a
    number at most 18.8.

    Args:
        words: n must be divisible by 4.
        values: float64 [4, n], overwritten; the result is a part of it.
    """
    numbers, radius, angle, along = values.unbind()
    first, second, third, fourth = words.unbind()
    quarter = len(first) // 4
    numbers.zero_()
    for radius_words, angle_words, places in (
        (first, second, 2 * quarter),
        (third, fourth, quarter),
    ):
        radius.copy_(radius_words).abs_().add_(0.5).mul_(2.0**-63)  # a tail, in (0, 1]
        radius.log_().mul_(-2).sqrt_()
        angle.copy_(angle_words).mul_(math.pi * 2.0**-63)
        numbers.addcmul_(radius, torch.cos(angle, out=along))
        across = angle.sin_().mul_(radius)
        numbers[:-places].add_(across[places:])
        numbers[-places:].add_(across[:places])
    return numbers.div_(2)
