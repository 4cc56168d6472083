"""Opacus's Poisson batches, with six things mended.

Whoever leaves a loop over them early leaves half a batch behind: each new loop says that it begins.
A worker's empty batch is a batch, where Opacus leaves it out, and the workers would wait for ever.
The draws come from a generator of their own, which no seed of the script's sets, and each worker's
from another one: with equal draws, two examples would always be in the same batches.
The largest batch is known, so that a step of more rows than examples stands out.
And the uniform numbers are float64: there are 2^24 float32 ones, of which a small rate takes more
than its share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch import Tensor
from torch.utils.data import DataLoader

from oso_dp.opacus.sanitize import seeded_generator


class Announced:
    """`begin` is called before the first batch of each loop; `begun`: whether there was a loop.

    `most`: examples of the largest batch drawn so far, those that workers fetch ahead among them.
    Of all loops, since a loop may begin while batches of another one wait to be taken.
    """

    begin: Callable[[], None] | None = None
    begun = False
    most = 0
    generator: torch.Generator | None
    sample_rate: float

    def renew(self) -> None:
        """From here on other batches than after any earlier start."""
        self.generator = torch.Generator()
        self.generator.seed()

    def announce(self) -> None:
        self.begun = True
        if self.begin is not None:
            self.begin()

    def noted(self, batch: list[int]) -> list[int]:
        """The same batch, after `most` has heard of it."""
        self.most = max(self.most, len(batch))
        return batch

    def drawn(self, count: int) -> Tensor:
        """Which of so many examples are in a batch, bool."""
        uniform = torch.rand(count, generator=self.generator, dtype=torch.float64)
        return uniform < self.sample_rate


class PoissonBatches(Announced, UniformWithReplacementSampler):
    """Of one process."""

    def __iter__(self) -> Iterator[list[int]]:
        self.announce()
        for _ in range(self.steps):
            yield self.noted(self.drawn(self.num_samples).nonzero().flatten().tolist())


class SharedPoissonBatches(Announced, DistributedUniformWithReplacementSampler):
    """Of one of several workers, among which the examples are dealt out."""

    def __iter__(self) -> Iterator[list[int]]:
        self.announce()
        places = torch.arange(self.total_size)
        if self.shuffle:  # in all workers alike
            shared = torch.Generator().manual_seed(self.shuffle_seed + self.epoch)
            places = torch.randperm(self.total_size, generator=shared)
        own = places[self.rank :: self.num_replicas]
        for _ in range(self.num_batches):
            yield self.noted(own[self.drawn(len(own))].tolist())


def announce_batches(
    loader: DataLoader, batches: int, secure_mode: bool = False
) -> PoissonBatches | SharedPoissonBatches:
    """Put batches of this room, so many in a loop, in the place of those of Opacus's loader.

    secure_mode: whether its generator is cryptographic, and so another one in each worker.
    """
    past: Any = loader.batch_sampler
    own: PoissonBatches | SharedPoissonBatches
    # Opacus makes int(1 / rate) batches, which rounding makes one too few for some numbers of them.
    # Then loader and accountant would have two sampling rates.
    if isinstance(past, DistributedUniformWithReplacementSampler):
        own = SharedPoissonBatches(
            total_size=past.total_size,
            sample_rate=past.sample_rate,
            generator=past.generator,
            steps=batches,
        )
        if not secure_mode:  # a script seeds its workers' loaders alike
            own.renew()
    else:
        own = PoissonBatches(
            num_samples=past.num_samples,
            sample_rate=past.sample_rate,
            generator=past.generator or seeded_generator(torch.device("cpu")),
            steps=batches,
        )
    vars(loader)["batch_sampler"] = own  # a DataLoader forbids it by its __setattr__
    return own
