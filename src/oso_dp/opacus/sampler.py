"""Opacus's Poisson batches, with seven things mended.

Whoever leaves a loop over them early leaves half a batch behind: each new loop says that it begins.
A worker's empty batch is a batch, where Opacus leaves it out, and the workers would wait for ever.
The draws come from a generator of their own, which no seed of the script's sets, and each worker's
from another one: with equal draws, two examples would always be in the same batches.
The sizes of the batches that were handed out and not yet used are known, so that a step without a
batch of its own stands out, and one of more rows than any of them has examples.
A forked process, or a copy, does not draw its parent's batches again.
And the uniform numbers are float64: there are 2^24 float32 ones, of which a small rate takes more
than its share.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
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


class TrackedSampler(ABC):
    """Batches that are announced, counted and drawn in one process.

    `begin` is called before the first batch of each loop; `begun`: whether there was a loop.
    `handed_out`: the number of batches that the script has got. `sizes`: those of the batches
    among them that no step has used, in ascending order.
    """

    begin: Callable[[], None] | None = None
    begun = False
    generator: torch.Generator | None
    sample_rate: float

    def prepare(self) -> None:
        """Count from here on, for this process."""
        self.handed_out, self.process = 0, os.getpid()
        self.sizes: list[int] = []
        self.fetched: deque[int] | None = None  # of the loop that begins: sizes fetched ahead

    def __iter__(self) -> Iterator[list[int]]:
        return self._counted(self.fetched)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise OsoError(
            "data_loader: a private loader cannot be copied or pickled: the copy would draw the "
            "same batches; call make_private for each training"
        )

    def reseed(self) -> None:
        """From here on other batches than after any earlier start."""
        self.generator = torch.Generator()
        self.generator.seed()

    def hand_out(self, size: int) -> None:
        """Note that the script has got a batch of so many examples."""
        self.handed_out += 1
        insort(self.sizes, size)

    def use(self, rows: int) -> None:
        """Take the smallest batch that can have so many rows from those that no step has used.

        So the batches that are left are never fewer, or smaller, than those that the script has
        left, whichever of them it takes.
        """
        del self.sizes[bisect_left(self.sizes, rows)]

    def _sample_mask(self, count: int) -> Tensor:
        """Which of so many examples are in a batch, bool."""
        uniform = torch.rand(count, generator=self.generator, dtype=torch.float64)
        return uniform < self.sample_rate

    def _counted(self, fetched: deque[int] | None) -> Iterator[list[int]]:
        """Batches; `fetched`: gets their sizes, if the loader tells when it hands them out."""
        check_process(self.process, "data_loader")
        self.begun = True
        if self.begin is not None:
            self.begin()
        for batch in self._batches():
            if fetched is None:
                self.hand_out(len(batch))
            else:
                fetched.append(len(batch))
            yield batch

    @abstractmethod
    def _batches(self) -> Iterator[list[int]]:
        """Those of one loop."""


class PoissonSampler(TrackedSampler, UniformWithReplacementSampler):
    """Of one process."""

    def _batches(self) -> Iterator[list[int]]:
        for _ in range(self.steps):
            yield self._sample_mask(self.num_samples).nonzero().flatten().tolist()


class DistributedPoissonSampler(TrackedSampler, DistributedUniformWithReplacementSampler):
    """Of one of several workers, among which the examples are dealt out."""

    def _batches(self) -> Iterator[list[int]]:
        places = torch.arange(self.total_size)
        if self.shuffle:  # in all workers alike
            shared = torch.Generator().manual_seed(self.shuffle_seed + self.epoch)
            places = torch.randperm(self.total_size, generator=shared)
        worker_places = places[self.rank :: self.num_replicas]
        for _ in range(self.num_batches):
            yield worker_places[self._sample_mask(len(worker_places))].tolist()


class CountedLoader(DPDataLoader):
    """Batches that workers fetch ahead count when the script gets them, not when they are drawn."""

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
    """An iterator of workers' batches that reports each one that it hands out."""

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


def check_process(process: int, what: str) -> None:
    """OsoError in another process than the one of this number, which called `make_private`."""
    if os.getpid() != process:
        raise OsoError(
            f"{what}: this process was forked after make_private and would repeat the noise and "
            "batches of its parent; call make_private in the forked process"
        )


def install_sampler(
    loader: DataLoader, batches: int, secure_mode: bool = False
) -> PoissonSampler | DistributedPoissonSampler:
    """Put batches of this room, so many in a loop, in the place of those of Opacus's loader.

    secure_mode: whether its generator is cryptographic, and so another one in each worker.
    """
    past: Any = loader.batch_sampler
    sampler: PoissonSampler | DistributedPoissonSampler
    # Opacus makes int(1 / rate) batches, which rounding makes one too few for some numbers of them.
    # Then loader and accountant would have two sampling rates.
    if isinstance(past, DistributedUniformWithReplacementSampler):
        sampler = DistributedPoissonSampler(
            total_size=past.total_size,
            sample_rate=past.sample_rate,
            generator=past.generator,
            steps=batches,
        )
        if not secure_mode:  # a script seeds its workers' loaders alike
            sampler.reseed()
    else:
        sampler = PoissonSampler(
            num_samples=past.num_samples,
            sample_rate=past.sample_rate,
            generator=past.generator or seeded_generator(torch.device("cpu")),
            steps=batches,
        )
    sampler.prepare()
    loader.__class__ = CountedLoader
    vars(loader)["batch_sampler"] = sampler  # a DataLoader forbids it by its __setattr__
    return sampler
