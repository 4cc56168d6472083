"""The mechanism's random numbers for R runs at once: batches of different sizes, and noise.

Batches are drawn on the host: a few thousand words each, and everybody knows their lengths without
asking the device. Noise is drawn where it is added, but only if it is seeded: the system's entropy
is the host's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oso_dp.privacy import philox
from oso_dp.privacy.rng_sources import BLOCK as NOISE_BLOCK
from oso_dp.privacy.rng_sources import RandomSource, Seeded, blocks
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.thread_pool import run_in_threads

# Batches are padded to a multiple of this, so that few shapes occur: what is freed by one step then
# fits the next. With every size different, the heap of a long run on a CPU grew fivefold.
BLOCK = 64


@dataclass(frozen=True)
class NoiseSpec:
    """What a sum gets: from which stream, and each run's standard deviation, [R]."""

    purpose: str
    deviation: Tensor


@dataclass(frozen=True)
class Batches:
    """Of those runs whose batches are padded to one width: indices int64 [r, B].

    `places`: where these runs stand among those asked for. `present`: which indices are a run's
    own, bool [r, B].
    """

    places: list[int]
    indices: Tensor
    present: Tensor


class BatchRNG:
    """Of `examples` examples; every number is drawn for a run's identity, a purpose and a step."""

    def __init__(
        self,
        randomness: RandomSource,
        sampling: PoissonSampling,
        examples: int,
        device: torch.device,
    ) -> None:
        self.randomness, self.sampling, self.examples = randomness, sampling, examples
        self.device = device
        self._on_device = device.type != "cpu" and isinstance(randomness, Seeded)

    def batches(self, run_ids: Sequence[str], step: int) -> tuple[Tensor, Tensor]:
        """Indices, int64 [R, B], and which of them are a run's own, bool [R, B].

        As wide as the longest batch needs, so that none overflows; the others are padded with the
        index 0, which is not their own.
        """
        drawn = [
            self.sampling.draw(self.examples, self.randomness.words(run_id, "sampling", step))
            for run_id in run_ids
        ]
        width = -(-max(map(len, drawn)) // BLOCK) * BLOCK
        indices = np.zeros((len(drawn), width), dtype=np.int64)
        present = np.zeros((len(drawn), width), dtype=bool)
        for row, batch in enumerate(drawn):
            indices[row, : len(batch)], present[row, : len(batch)] = batch, True
        return torch.from_numpy(indices).to(self.device), torch.from_numpy(present).to(self.device)

    def batches_by_width(self, run_ids: Sequence[str], step: int) -> list[Batches]:
        """The same, but on a CPU each as wide as it would be without the other runs.

        A product's shape may decide how it is rounded, and a run's last bits must not depend on
        its company. An accelerator rounds by the number of runs anyway, and is quicker with all.
        """
        indices, present = self.batches(run_ids, step)
        places: dict[int, list[int]] = {}
        for place, own in enumerate(present):
            longest = int(own.nonzero().max()) + 1 if self.device.type == "cpu" and own.any() else 0
            places.setdefault(-(-longest // BLOCK) * BLOCK, []).append(place)
        if len(places) == 1:
            return [Batches(list(range(len(run_ids))), indices, present)]
        return [
            Batches(alike, indices[alike, :width], present[alike, :width])
            for width, alike in places.items()
        ]

    def add_noise(
        self,
        run_ids: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        noise: Sequence[NoiseSpec],
    ) -> list[Tensor]:
        """Each total, [R, ...], plus fresh noise, in the total's type.

        Added in float64: a sum of two float32 numbers would show which noise was possible.
        """
        add = self._on_device_noised if self._on_device else self._on_host_noised
        return add(run_ids, step, totals, noise)

    def _on_host_noised(
        self,
        run_ids: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        noise: Sequence[NoiseSpec],
    ) -> list[Tensor]:
        """A block of one run's total after the other, while the block is in the cache."""
        exact = [total.cpu().reshape(len(run_ids), -1).numpy() for total in totals]
        noised = [np.empty_like(rows) for rows in exact]
        deviations = [one.deviation.tolist() for one in noise]

        def add(number: int, run: int, block: int, place: slice) -> None:
            part = exact[number][run, place]
            numbers = np.empty(len(part))
            purpose = noise[number].purpose
            self.randomness.fill(numbers, run_ids[run], purpose, step, block)
            numbers *= deviations[number][run]
            numbers += part
            noised[number][run, place] = numbers

        jobs = [
            (number, run, *block)
            for number, rows in enumerate(exact)
            for run in range(len(run_ids))
            for block in blocks(rows.shape[1])
        ]
        much = sum(rows.size for rows in exact) > NOISE_BLOCK
        run_in_threads(add, jobs, torch.get_num_threads() if much else 1)
        return [
            torch.from_numpy(rows).view(total.shape).to(total.device)
            for rows, total in zip(noised, totals, strict=True)
        ]

    def _on_device_noised(
        self,
        run_ids: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        noise: Sequence[NoiseSpec],
    ) -> list[Tensor]:
        noised = []
        for total, one in zip(totals, noise, strict=True):
            rows = total.reshape(len(run_ids), -1)
            numbers = philox.normals(run_ids, one.purpose, step, rows.shape[1], self.device)
            numbers *= one.deviation[:, None]
            noised.append(numbers.add_(rows).to(total.dtype).view(total.shape))
        return noised
