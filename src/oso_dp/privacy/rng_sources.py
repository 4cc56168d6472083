"""Where the mechanism's random numbers come from: reproducible streams, or the system's entropy.

Each number is drawn for a run's identity, a purpose and a step.

`Seeded` is for experiments on public data. Numbers come in blocks, and each block has a generator
of its own, SFC64 (Doty-Humphrey, PractRand), whose 192-bit key is the SHA-256 of identity, purpose,
step and the block's number. So nothing has to be saved to resume, a result does not depend on which
runs share a device, and several threads fill one vector with the same numbers as one thread would.
No two streams overlap unless their keys are equal: SFC64's state holds a counter beside the key,
which begins at 1 in every stream and goes up with each word, so that within 2^64 words two streams
can be in the same state only at the same place, and then they were so from the start. But whoever
knows the identity knows the noise: reproducible is not private.

`SystemEntropy` is for data that need protection. Every number comes fresh from the operating
system's cryptographic generator; no seed exists, and no two calls ever return the same.

torch.Generator is not used on the CPU on purpose: its Mersenne twister keeps only 32 bits of the
seed, and a study that draws tens of millions of streams would use many of them twice.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from oso_dp.errors import OsoError
from oso_dp.privacy.poisson_subset import Words
from oso_dp.privacy.thread_pool import run_in_threads

# The number of the scheme by which identity, purpose and step become numbers, on the host and on an
# accelerator (`oso_dp.privacy.philox`). Whatever changes them changes this number, and the values
# in tests/privacy/test_golden.py; a run's realisation can be repeated with the same number only.
#   1: Philox; a uniform number for each example of the data set decides whether it takes part.
#   2: SFC64 in blocks, see above; a batch is a binomial size and a random subset of that size. An
#      accelerator's noise is that of 1, its batches are the host's.
RNG_VERSION = 2

BLOCK = 2**14  # normal numbers with one key; 130 kB, so that a block fits a core's cache


class RandomSource(ABC):
    """A source of random numbers for runs, a purpose and a step."""

    @abstractmethod
    def words(self, run_id: str, purpose: str, step: int) -> Words:
        """A source of random words that goes on where it stopped."""

    @abstractmethod
    def fill(self, out: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        """Write a vector's block of this number, standard normal, into out, float64 [<= BLOCK]."""

    def normals(
        self,
        run_ids: Sequence[str],
        purpose: str,
        step: int,
        shape: tuple[int, ...],
        threads: int = 1,
    ) -> np.ndarray:
        """Standard normal, float64 [R, *shape], by so many threads at most."""
        numbers = np.empty((len(run_ids), *shape))
        rows = numbers.reshape(len(run_ids), -1)

        def fill(row: int, block: int, place: slice) -> None:
            self.fill(rows[row, place], run_ids[row], purpose, step, block)

        jobs = [(row, *block) for row in range(len(rows)) for block in blocks(rows.shape[1])]
        run_in_threads(fill, jobs, threads if rows.size > BLOCK else 1)
        return numbers


def blocks(size: int) -> list[tuple[int, slice]]:
    """The number and the place of each block of a vector of this size."""
    starts = range(0, size, BLOCK)
    return [(number, slice(start, start + BLOCK)) for number, start in enumerate(starts)]


class Seeded(RandomSource):
    """The same numbers each time they are asked for, by any number of threads."""

    def words(self, run_id: str, purpose: str, step: int) -> Words:
        return StreamKey(run_id, purpose, step, 0).bits().random_raw

    def fill(self, out: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        bits = StreamKey(run_id, purpose, step, block).bits()
        np.random.Generator(bits).standard_normal(out=out)


class SystemEntropy(RandomSource):
    """Fresh numbers, from os.urandom; the arguments but the sizes are not used."""

    def words(self, run_id: str, purpose: str, step: int) -> Words:
        return _system_words

    def fill(self, out: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        """Each the sum of four independent normal numbers, halved.

        A noised sum's lowest bits may tell which numbers a generator can give; whoever wants to
        undo one number then has to search through four at once (Holohan and Braghin, Secure Random
        Sampling in Differential Privacy, ESORICS 2021).
        """
        out[:] = 0.0
        for _ in range(_SUMMED):
            out += _by_inversion(len(out))
        out /= _SUMMED**0.5


_SUMMED = 4  # its root is exact


def _by_inversion(count: int) -> np.ndarray:
    """Standard normal, from a lower tail in (0, 1/2) and a sign.

    The tail has two words: one would leave gaps between large values that a noised sum shows.
    """
    from scipy.special import ndtri  # the normal distribution's quantile function

    first, second = _system_words(count), _system_words(count)
    fine = ((second >> np.uint64(12)) + 0.5) * 2.0**-52
    tail = ((first >> np.uint64(12)) + fine) * 2.0**-53
    sign = 1.0 - 2.0 * (first & np.uint64(1))
    return np.asarray(sign * ndtri(tail))


SOURCES: dict[str, type[RandomSource]] = {"seeded": Seeded, "system": SystemEntropy}


def get_source(name: str) -> RandomSource:
    """The source of this name; OsoError names the allowed ones."""
    if name not in SOURCES:
        raise OsoError(f"randomness {name!r}: not known; allowed are {', '.join(SOURCES)}")
    return SOURCES[name]()


def _system_words(count: int) -> np.ndarray:
    """Random 64-bit words."""
    return np.frombuffer(os.urandom(8 * count), dtype="<u8")


class StreamKey(ISeedSequence):
    """What a block's generator starts from: the first words of a hash of whose block it is.

    A zero character ends each part, and none stands in an identity; the last two parts are whole
    numbers. So no two blocks have one name.
    """

    def __init__(self, run_id: str, purpose: str, step: int, block: int) -> None:
        name = f"{run_id}\x00{purpose}\x00{step}\x00{block}"
        self.digest = hashlib.sha256(name.encode()).digest()

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """SFC64 asks for three words of 64 bits."""
        return np.frombuffer(self.digest, dtype=np.dtype(dtype).newbyteorder("<"), count=n_words)

    def bits(self) -> np.random.SFC64:
        # Counts from 1, and throws its first twelve words away. Only the stubs want less than the
        # documentation allows.
        return np.random.SFC64(self)  # type: ignore[arg-type]


def init_generator(run_id: str, purpose: str, step: int) -> np.random.Generator:
    """The generator of a run's starting weights, the same under every scheme of `STREAMS`."""
    digest = hashlib.sha256(f"{run_id}\x00{purpose}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))
