"""Sources of random numbers: seeded, reproducible streams, or the operating system's entropy.

Each number is drawn for a run id, a purpose and a step.

`Seeded` is for experiments on public data. Numbers are drawn in blocks, each with a separate SFC64
generator (Doty-Humphrey, PractRand), whose 192-bit key is from the SHA-256 of run id, purpose, step
and block number. So resuming needs no saved state, a result does not depend on the other runs on a
device, and the result does not depend on the number of threads. Streams with different keys do not
overlap: SFC64's state has a counter beside the key, which starts at 1 and increases with each word,
so that within 2^64 words two streams can be in the same state only at the same position, and then
they were equal from the start. But the run id reveals the noise: reproducible is not private.

`SystemEntropy` is for private data. Batches are drawn from the operating system's cryptographic
generator, noise from ChaCha20 with a fresh key of that generator for each block, on the device
where it is added. There is no seed and no state; no two calls return the same.

torch.Generator is not used on the CPU: its Mersenne twister uses only 32 bits of the seed, and a
study that draws tens of millions of streams would use many of them twice.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import Words

if TYPE_CHECKING:
    from torch import Tensor

# The version of the mapping from run id, purpose and step to numbers, on the CPU and accelerators
# (`oso_dp.privacy.philox`). A change of the numbers must change it, and the values in
# tests/privacy/test_rng_version.py; a run can be repeated with the same version only.
#   1: Philox; a uniform number per example of the data set decides whether it is in the batch.
#   2: SFC64 in blocks, see above; a batch is a binomial size and a random subset of that size. An
#      accelerator's noise is as in 1, its batches are drawn on the CPU.
RNG_VERSION = 2

BLOCK = 2**14  # normal numbers per key; 130 kB, which fits a core's cache


class RandomSource(ABC):
    """A source of random numbers by run id, purpose and step."""

    @abstractmethod
    def words(self, run_id: str, purpose: str, step: int) -> Words:
        """A function that returns the next random words of a stream."""

    @abstractmethod
    def add_noise(
        self,
        run_ids: Sequence[str],
        purposes: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        deviations: Sequence[Tensor],
    ) -> list[Tensor]:
        """Each total, [R, P], plus normal noise of each run's deviation, float64 [R].

        By tensor operations on the device of the totals, in float64, since the low bits of a
        float32 sum would reveal which noise was possible; a result has the dtype of its total.
        """


def blocks(size: int) -> list[tuple[int, slice]]:
    """The number and the slice of each block of a vector of this size."""
    starts = range(0, size, BLOCK)
    return [(number, slice(start, start + BLOCK)) for number, start in enumerate(starts)]


class Seeded(RandomSource):
    """The same numbers in each call, for any number of threads."""

    def words(self, run_id: str, purpose: str, step: int) -> Words:
        return StreamKey(run_id, purpose, step, 0).bits().random_raw

    def fill(self, out: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        """Write the normal numbers of a block of a CPU's stream into out, float64 [<= BLOCK].

        On a CPU, `BatchRNG` adds these instead of calling `add_noise`, which draws others (Philox).
        """
        bits = StreamKey(run_id, purpose, step, block).bits()
        np.random.Generator(bits).standard_normal(out=out)

    def add_noise(
        self,
        run_ids: Sequence[str],
        purposes: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        deviations: Sequence[Tensor],
    ) -> list[Tensor]:
        from oso_dp.privacy import philox

        noised = []
        for purpose, total, deviation in zip(purposes, totals, deviations, strict=True):
            numbers = philox.normals(run_ids, purpose, step, total.shape[1], total.device)
            noised.append(numbers.mul_(deviation[:, None]).add_(total).to(total.dtype))
        return noised


class SystemEntropy(RandomSource):
    """Fresh numbers; run id, purpose and step are ignored."""

    def words(self, run_id: str, purpose: str, step: int) -> Words:
        return _system_words

    def add_noise(
        self,
        run_ids: Sequence[str],
        purposes: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        deviations: Sequence[Tensor],
    ) -> list[Tensor]:
        from oso_dp.privacy import system_noise

        return system_noise.add_noise(totals, deviations)


SOURCES: dict[str, type[RandomSource]] = {"seeded": Seeded, "system": SystemEntropy}


def get_source(name: str) -> RandomSource:
    """The source of this name; OsoError for an unknown name."""
    if name not in SOURCES:
        raise OsoError(f"randomness: {name!r}; must be one of {', '.join(SOURCES)}")
    return SOURCES[name]()


def _system_words(count: int) -> np.ndarray:
    """Random 64-bit words."""
    return np.frombuffer(os.urandom(8 * count), dtype="<u8")


class StreamKey(ISeedSequence):
    """The key of a block's generator: the first words of a hash of run id, purpose, step and block.

    The fields are separated by null characters, which run ids and purposes do not contain. So two
    blocks never have the same hashed name.
    """

    def __init__(self, run_id: str, purpose: str, step: int, block: int) -> None:
        name = f"{run_id}\x00{purpose}\x00{step}\x00{block}"
        self.digest = hashlib.sha256(name.encode()).digest()

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """SFC64 uses three words of 64 bits."""
        return np.frombuffer(self.digest, dtype=np.dtype(dtype).newbyteorder("<"), count=n_words)

    def bits(self) -> np.random.SFC64:
        # It counts from 1 and discards its first twelve words. The type stubs are narrower than
        # the documentation.
        return np.random.SFC64(self)  # type: ignore[arg-type]


def init_generator(run_id: str, purpose: str, step: int) -> np.random.Generator:
    """The generator of a run's initial weights, the same for every `RNG_VERSION`."""
    digest = hashlib.sha256(f"{run_id}\x00{purpose}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))
