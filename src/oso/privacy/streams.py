"""Where the mechanism's random numbers come from: reproducible streams, or the system's entropy.

Each number is drawn for a run's identity, a purpose and a step.

`Seeded` is for experiments on public data. Philox is counter-based: the key says whose stream it is
(128 bits of SHA-256, so that two runs never share one) and the counter's highest word holds the
step, so that each step has 2^192 blocks of its own. Nothing has to be saved to resume, and a result
does not depend on which runs share a device. But whoever knows the identity knows the noise:
reproducible is not private.

`SystemEntropy` is for data that need protection. Every number comes fresh from the operating
system's cryptographic generator; no seed exists, and no two calls ever return the same.

torch.Generator is not used on the CPU on purpose: its Mersenne twister keeps only 32 bits of the
seed, and a study that draws tens of millions of streams would use many of them twice.
"""

from __future__ import annotations

import hashlib
import os
from typing import Protocol

import numpy as np

from oso.errors import OsoError

STREAMS = 1  # number of the scheme by which batches and noise are drawn; results record it


class Randomness(Protocol):
    """A source of float64 numbers for one run, purpose and step."""

    def uniforms(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform on [0, 1)."""

    def normals(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal."""


class Seeded:
    """The same numbers each time they are asked for."""

    def uniforms(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(stream(run_id, purpose, step).random(shape))

    def normals(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(stream(run_id, purpose, step).standard_normal(shape))


class SystemEntropy:
    """Fresh numbers, from os.urandom; the arguments but the shape are not used."""

    def uniforms(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray((_system_words(shape) >> np.uint64(12)) * 2.0**-52)

    def normals(self, run_id: str, purpose: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """By inversion, a lower tail in (0, 1/2) and a sign.

        The tail has two words: one would leave gaps between large values that a noised sum shows.
        """
        from scipy.special import ndtri  # the normal distribution's quantile function

        first, second = _system_words(shape), _system_words(shape)
        fine = ((second >> np.uint64(12)) + 0.5) * 2.0**-52
        tail = ((first >> np.uint64(12)) + fine) * 2.0**-53
        sign = 1.0 - 2.0 * (first & np.uint64(1))
        return np.asarray(sign * ndtri(tail))


SOURCES: dict[str, type[Randomness]] = {"seeded": Seeded, "system": SystemEntropy}


def source(name: str) -> Randomness:
    """The source of this name; OsoError names the allowed ones."""
    if name not in SOURCES:
        raise OsoError(f"randomness {name!r}: not known; allowed are {', '.join(SOURCES)}")
    return SOURCES[name]()


def _system_words(shape: tuple[int, ...]) -> np.ndarray:
    """Random 64-bit words."""
    count = int(np.prod(shape))
    return np.frombuffer(os.urandom(8 * count), dtype="<u8").reshape(shape)


def stream(run_id: str, purpose: str, step: int) -> np.random.Generator:
    """The seeded generator of one run, for sampling or for the noise of one query, at one step."""
    digest = hashlib.sha256(f"{run_id}\x00{purpose}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))
