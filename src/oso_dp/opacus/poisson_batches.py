"""Opacus's Poisson batches, with three things mended.

Whoever leaves a loop over them early leaves half a batch behind: each new loop says that it begins.
A worker's empty batch is a batch, where Opacus leaves it out, and the workers would wait for ever.
And the draws come from a generator of their own, which a seed in the training loop does not reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import DataLoader

from oso_dp.opacus.sanitize import seeded_generator


class Announced:
    """`begin` is called before the first batch of each loop."""

    begin: Callable[[], None] | None = None
    generator: torch.Generator | None

    def renew(self) -> None:
        """From here on other batches than after any earlier start."""
        self.generator = torch.Generator()
        self.generator.seed()

    def announce(self) -> None:
        if self.begin is not None:
            self.begin()


class PoissonBatches(Announced, UniformWithReplacementSampler):
    """Of one process."""

    def __iter__(self) -> Iterator[list[int]]:
        self.announce()
        yield from super().__iter__()


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
            drawn = torch.rand(len(own), generator=self.generator) < self.sample_rate
            yield own[drawn].tolist()


def announce_batches(loader: DataLoader, batches: int) -> PoissonBatches | SharedPoissonBatches:
    """Put batches of this room, so many in a loop, in the place of those of Opacus's loader."""
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
        if own.generator is None:  # with equal seeds, workers would draw the same places
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
