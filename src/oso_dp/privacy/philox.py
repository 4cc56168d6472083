"""Seeded noise on an accelerator: Philox 4x32-10 (Salmon et al. 2011).

It is counter-based: 128 bits of a hash of the identity select the stream (64 in the key, 64 in the
counter), the counter's second word is the step and its first the position within the step, so that
all numbers are computed at once. The integers, and their conversion to normal numbers, are the same
on any accelerator, but not the CPU's: a run's realisation depends on the type of device. On CUDA,
one kernel replaces 150 tensor operations.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def normals(
    run_ids: Sequence[str], purpose: str, step: int, count: int, device: torch.device
) -> Tensor:
    """Standard normal, float64 [R, count], by Box and Muller's transform."""
    first, second = pairs(run_ids, purpose, step, count, device)
    radius = torch.log((first + 1) * 2.0**-53).mul_(-2).sqrt_()  # of (0, 1]: never log(0)
    angle = second * (2 * math.pi * 2.0**-53)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def pairs(
    run_ids: Sequence[str], purpose: str, step: int, count: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Two times ceil(count / 2) integers below 2^53, float64, for each run."""
    digests = [hashlib.sha256(f"{run_id}\x00{purpose}".encode()).digest() for run_id in run_ids]
    identity = [[int.from_bytes(d[i : i + 4], "little") for i in (0, 4, 8, 12)] for d in digests]
    key0, key1, high0, high1 = torch.tensor(identity, device=device).T[..., None]
    places = torch.arange(-(-count // 2), device=device)[None]
    counter = (places, torch.full_like(places, step), high0, high1)
    of_words = _kernel() if device.type == "cuda" else integers
    first, second = of_words(*counter, key0, key1)
    return first.double(), second.double()


def integers(
    c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor
) -> tuple[Tensor, Tensor]:
    """Two integers of 53 bits, int64, from the words of a counter and a key."""
    w = philox((c0, c1, c2, c3), (k0, k1))
    return (w[0] >> 5) * 2**26 + (w[1] >> 6), (w[2] >> 5) * 2**26 + (w[3] >> 6)


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Four words from four words of counter and two of key, int64 tensors that hold 32 bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The product of 64 bits wraps into the sign; shift and mask restore its words.
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (right >> 32 & _WORD) ^ c1 ^ k0,
            right & _WORD,
            (left >> 32 & _WORD) ^ c3 ^ k1,
            left & _WORD,
        )
        k0, k1 = k0 + _WEYL[0] & _WORD, k1 + _WEYL[1] & _WORD
    return c0, c1, c2, c3


# The same as `integers`, for one position, as source for CUDA's runtime compiler.
KERNEL = f"""
template <typename T>
void whole_numbers(T i0, T i1, T i2, T i3, T j0, T j1, T& first, T& second) {{
    unsigned int c0 = i0, c1 = i1, c2 = i2, c3 = i3, k0 = j0, k1 = j1;
    for (int round = 0; round < {_ROUNDS}; ++round) {{
        unsigned long long left = {_MULTIPLIERS[0]}ull * c0, right = {_MULTIPLIERS[1]}ull * c2;
        c0 = (unsigned int)(right >> 32) ^ c1 ^ k0;
        c1 = (unsigned int)right;
        c2 = (unsigned int)(left >> 32) ^ c3 ^ k1;
        c3 = (unsigned int)left;
        k0 += {_WEYL[0]}u;
        k1 += {_WEYL[1]}u;
    }}
    first = (T)(((unsigned long long)(c0 >> 5) << 26) + (c1 >> 6));
    second = (T)(((unsigned long long)(c2 >> 5) << 26) + (c3 >> 6));
}}
"""


@cache
def _kernel() -> Callable[..., tuple[Tensor, Tensor]]:
    from torch.cuda.jiterator import _create_multi_output_jit_fn

    return _create_multi_output_jit_fn(KERNEL, num_outputs=2)
