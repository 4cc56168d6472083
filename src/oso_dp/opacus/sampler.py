"""Opacus's Poisson samplers, with these differences:

- Each loop over the loader resets the optimizer, so that a loop that ends early leaves no batch.
- A worker's empty batch is yielded; Opacus skips it, and the other workers would wait forever.
- The sampler has its own generator, which is independent of the script's seeds, and each worker has
  a different one: with equal draws, two examples would always be in the same batches.
- The sizes of batches that no step has used are recorded, so that a step without a new batch, or
  with more rows than any of these, is detected.
- Each loop over the loader seeds the global generators anew before it and after it, unless the run
  is to be reproducible: dropout and data sets draw from them.
- A forked process, or a copy, cannot draw its parent's batches again.
- Uniform numbers are float64: float32 has 2^24 values, too few for small sampling rates.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch import Tensor
from torch.utils.data import DataLoader

from oso_dp.errors import OsoError
from oso_dp.opacus.mechanism import seeded_generator
from oso_dp.privacy.global_generators import seed_generators


class TrackedSampler(ABC):
    """A Poisson sampler that counts its batches and works in one process only.

    Attributes:
        begin: Called before the first batch of each loop.
        begun: Whether there was a loop.
        is_reproducible: Whether the script's seeds decide what is drawn.
        handed_out: The number of batches that the script has received.
        sizes: Sizes of those batches that no step has used, ascending.
    """

    begin: Callable[[], None] | None = None
    begun = False
    is_reproducible = False
    generator: torch.Generator | None
    sample_rate: float
    accounted_rate: float

    def prepare(self) -> None:
        """Start counting in this process."""
        self.accounted_rate = self.sample_rate
        self.handed_out, self.process = 0, os.getpid()
        self.sizes: list[int] = []
        self.fetched: deque[int] | None = None  # sizes of the next loop's prefetched batches

    def __iter__(self) -> Iterator[list[int]]:
        return self._counted(self.fetched)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise OsoError(
            "data_loader: cannot be copied or pickled, since the copy would draw the same batches; "
            "call make_private for each training"
        )

    def reseed(self) -> None:
        """Draw fresh batches from here on."""
        self.generator = torch.Generator()
        self.generator.seed()

    def hand_out(self, size: int) -> None:
        """Record that the script has received a batch of `size` examples."""
        self.handed_out += 1
        insort(self.sizes, size)

    def use(self, rows: int) -> None:
        """Mark the smallest unused batch with at least `rows` examples as used.

        The recorded batches are then never fewer or smaller than the script's unused ones,
        whichever of them it used.
        """
        del self.sizes[bisect_left(self.sizes, rows)]

    def _sample_mask(self, count: int) -> Tensor:
        """Which of `count` examples are in a batch, bool [count]."""
        if self.sample_rate != self.accounted_rate:
            raise OsoError(
                f"data_loader: sampling rate {self.sample_rate:g}; must stay "
                f"{self.accounted_rate:g}, for which epsilon is computed"
            )
        uniform = torch.rand(count, generator=self.generator, dtype=torch.float64)
        return uniform < self.sample_rate

    def _counted(self, fetched: deque[int] | None) -> Iterator[list[int]]:
        """Batches; if `fetched` is given, it gets their sizes, else they count as handed out."""
        check_process(self.process, "data_loader")
        self.begun = True
        if self.begin is not None:
            self.begin()
        self._seed_generators()
        for batch in self._batches():
            if fetched is None:
                self.hand_out(len(batch))
            else:
                fetched.append(len(batch))
            yield batch
        self._seed_generators()

    def _seed_generators(self) -> None:
        if not self.is_reproducible:
            seed_generators()
            torch.cuda.manual_seed_all(secrets.randbits(63))

    @abstractmethod
    def _batches(self) -> Iterator[list[int]]:
        """The batches of one loop."""


class PoissonSampler(TrackedSampler, UniformWithReplacementSampler):
    """For one process."""

    def _batches(self) -> Iterator[list[int]]:
        for _ in range(self.steps):
            yield self._sample_mask(self.num_samples).nonzero().flatten().tolist()


class DistributedPoissonSampler(TrackedSampler, DistributedUniformWithReplacementSampler):
    """For one of several workers, which have disjoint subsets of the examples."""

    def _batches(self) -> Iterator[list[int]]:
        indices = torch.arange(self.total_size)
        if self.shuffle:  # equally in all workers
            shared = torch.Generator().manual_seed(self.shuffle_seed + self.epoch)
            indices = torch.randperm(self.total_size, generator=shared)
        worker_indices = indices[self.rank :: self.num_replicas]
        for _ in range(self.num_batches):
            yield worker_indices[self._sample_mask(len(worker_indices))].tolist()


class CountedLoader(DPDataLoader):
    """Counts prefetched batches when the script receives them, not when they are drawn."""

    def __iter__(self) -> Any:
        if self.num_workers == 0:
            return super().__iter__()
        batches: Any = self.batch_sampler
        fetched: deque[int] = deque()
        batches.fetched = fetched
        try:
            return HandedOut(super().__iter__(), batches, fetched)
        finally:
            batches.fetched = None


class HandedOut:
    """An iterator over prefetched batches that records each one that it yields."""

    def __init__(self, iterator: Any, batches: TrackedSampler, fetched: deque[int]) -> None:
        self.iterator, self.batches, self.fetched = iterator, batches, fetched

    def __iter__(self) -> HandedOut:
        return self

    def __len__(self) -> int:
        return len(self.iterator)

    def __next__(self) -> Any:
        batch = next(self.iterator)
        self.batches.hand_out(self.fetched.popleft())
        return batch


def check_process(process: int, name: str) -> None:
    """OsoError unless this is the process (by its id) that called `make_private`."""
    if os.getpid() != process:
        raise OsoError(
            f"{name}: this process was forked after make_private and would repeat the noise and "
            "batches of its parent; call make_private in the forked process"
        )


def learn_empty_batch(loader: DataLoader) -> None:
    """Give Opacus's collate function a batch of one, whose structure an empty batch will have.

    It would learn it from the first batch, which may be empty.
    """
    collate: Any = loader.collate_fn
    with torch.random.fork_rng(devices=[]), suppress(Exception):  # the loader will raise it, too
        collate.first_batch = collate.wrapped_collator_fn([loader.dataset[0]])


def install_sampler(
    loader: DataLoader, batches: int, secure_mode: bool = False
) -> PoissonSampler | DistributedPoissonSampler:
    """Replace the sampler of Opacus's loader by one of this module, with `batches` in a loop.

    `secure_mode`: the generator is cryptographic, and so different in each worker.
    """
    replaced: Any = loader.batch_sampler
    sampler: PoissonSampler | DistributedPoissonSampler
    # Opacus makes int(1 / rate) batches, which rounding makes one too few for some rates; loader
    # and accountant would then have different sampling rates.
    if isinstance(replaced, DistributedUniformWithReplacementSampler):
        sampler = DistributedPoissonSampler(
            total_size=replaced.total_size,
            sample_rate=replaced.sample_rate,
            generator=replaced.generator,
            steps=batches,
        )
        if not secure_mode:  # scripts seed the loaders of all workers equally
            sampler.reseed()
    else:
        sampler = PoissonSampler(
            num_samples=replaced.num_samples,
            sample_rate=replaced.sample_rate,
            generator=replaced.generator or seeded_generator(torch.device("cpu")),
            steps=batches,
        )
    sampler.prepare()
    loader.__class__ = CountedLoader
    vars(loader)["batch_sampler"] = sampler  # DataLoader.__setattr__ forbids it
    return sampler
