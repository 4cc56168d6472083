"""Random words from ChaCha20 (RFC 8439), a cryptographic generator, on any device.

Each call draws a 256-bit key from the operating system's generator and uses it once. No key is
stored, so that forks, copies and resumed runs share none. On a CPU, `cryptography` computes the key
stream; on an accelerator, where the key is copied to, tensor operations do, and on CUDA one kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_CONSTANTS = tuple(np.frombuffer(b"expand 32-byte k", dtype="<u4").tolist())
_ROUND_PAIRS = 10
# The words of the state that each quarter round changes: the columns, then the diagonals.
_QUARTER_ROUNDS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
_BLOCK = 8  # words of 64 bits


def draw_words(words: Tensor) -> None:
    """Write fresh random 64-bit words into a contiguous int64 tensor."""
    key = os.urandom(32)
    if words.device.type == "cpu":
        _write_on_host(key, words)
    else:
        words.copy_(device_words(key, words.numel(), words.device).view_as(words))


def _write_on_host(key: bytes, words: Tensor) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    data = words.zero_().numpy().data.cast("B")
    # Counter and nonce are zero, as everywhere here: each key is used once.
    Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update_into(data, data)


def device_words(key: bytes, count: int, device: torch.device) -> Tensor:
    """The first words of the key stream of a key, int64 [count]; the same on any device."""
    blocks = torch.arange(-(-count // _BLOCK), device=device)
    halves = torch.tensor(np.frombuffer(key, dtype="<i8").tolist(), device=device)
    of_block = _kernel() if device.type == "cuda" else key_stream
    return torch.stack(of_block(blocks, *halves.view(4, 1)), dim=1).flatten()[:count]


def key_stream(block: Tensor, *key: Tensor) -> tuple[Tensor, ...]:
    """The eight words of a block of the key stream, from its number and the four of the key."""
    key_words = [half >> shift & _WORD for half in key for shift in (0, 32)]
    first = [torch.full_like(block, constant) for constant in _CONSTANTS]
    first += [word.expand_as(block) for word in key_words]
    first += [block, *(torch.zeros_like(block) for _ in range(3))]
    state = list(first)
    for _ in range(_ROUND_PAIRS):
        for places in _QUARTER_ROUNDS:
            _quarter_round(state, places)
    low_high = [word + start & _WORD for word, start in zip(state, first, strict=True)]
    return tuple(low | high << 32 for low, high in zip(low_high[::2], low_high[1::2], strict=True))


def _steps(places: Sequence[int]) -> tuple[tuple[int, int, int, int], ...]:
    """Of a quarter round: the word that grows, by which, the word that is turned, by how much."""
    a, b, c, d = places
    return (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)


def _quarter_round(state: list[Tensor], places: Sequence[int]) -> None:
    """Of 32-bit words in int64 tensors."""
    for changed, added, turned, shift in _steps(places):
        state[changed] = state[changed] + state[added] & _WORD
        mixed = state[turned] ^ state[changed]
        state[turned] = (mixed << shift & _WORD) | mixed >> (32 - shift)


# The same as `key_stream`, for one block, as source for CUDA's runtime compiler.
_STEPS = "\n".join(
    f"x{changed} += x{added}; x{turned} ^= x{changed}; "
    f"x{turned} = x{turned} << {shift} | x{turned} >> {32 - shift};"
    for places in _QUARTER_ROUNDS
    for changed, added, turned, shift in _steps(places)
)
_FIRST = [
    *(f"{constant}u" for constant in _CONSTANTS),
    *(f"(unsigned long long)k{half} >> {shift}" for half in range(4) for shift in (0, 32)),
    *("block", "0u", "0u", "0u"),
]
_OUT = "\n".join(
    f"w{i} = (T)((unsigned long long)(x{2 * i + 1} + s{2 * i + 1}) << 32 | (x{2 * i} + s{2 * i}));"
    for i in range(_BLOCK)
)
KERNEL = f"""
template <typename T>
void key_stream(T block, T k0, T k1, T k2, T k3,
                T& w0, T& w1, T& w2, T& w3, T& w4, T& w5, T& w6, T& w7) {{
    unsigned int {", ".join(f"s{i} = (unsigned int)({word})" for i, word in enumerate(_FIRST))};
    unsigned int {", ".join(f"x{i} = s{i}" for i in range(16))};
    for (int pair = 0; pair < {_ROUND_PAIRS}; ++pair) {{
{_STEPS}
    }}
{_OUT}
}}
"""


@cache
def _kernel() -> Callable[..., tuple[Tensor, ...]]:
    from torch.cuda.jiterator import _create_multi_output_jit_fn

    return _create_multi_output_jit_fn(KERNEL, num_outputs=_BLOCK)
