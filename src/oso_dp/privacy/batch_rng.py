"""The mechanism's random numbers for R parallel runs: Poisson batches and Gaussian noise.

Batches are drawn on the CPU: they take a few thousand words each, and their lengths are then known
without synchronizing with the device. Noise is drawn on the device where it is added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.rng_sources import BLOCK as NOISE_BLOCK
from oso_dp.privacy.rng_sources import RandomSource, Seeded, blocks
from oso_dp.privacy.sampling import PoissonSampling, Words
from oso_dp.privacy.thread_pool import run_in_threads

# Batches are padded to a multiple of `BLOCK`, so that few shapes occur and freed memory fits the
# next step. With all sizes different, the heap of a long run on a CPU grew fivefold. On a CPU, the
# short batches that practitioners use would cost up to twice as much; the study's of about 512
# keep their widths, and with them their results to the last bit.
BLOCK = 64
SHORT_BLOCK, MAX_SHORT = 8, 384
MICROBATCH_BLOCK, MAX_MICROBATCH = 16, 1024  # of private data


def padded_length(length: int, device: torch.device) -> int:
    """The width that a batch of this length has on a device, whatever else is trained beside it."""
    short = device.type == "cpu" and length <= MAX_SHORT
    block = SHORT_BLOCK if short else BLOCK
    return _round_up(length, block)


@dataclass(frozen=True)
class Microbatches:
    """Of private data: `size` records each, `count` or more of them in a batch.

    A library may round a record's gradient by its place, and by the shape of a product, never by
    the values of other records. Therefore microbatches have one size, and the records of a batch
    stand at random places of them: one record more takes an empty place, and the others keep
    theirs. All but the largest batches fill the same number of microbatches.
    """

    size: int
    count: int

    @classmethod
    def of(cls, expected: float, rate: float, most: int | None) -> "Microbatches":
        """At most `most` records each. They are public: a function of the arguments.

        expected: the batch size, of Poisson sampling at this rate; at 1, a place is left. A float32
        sum of many more records would be rounded by more than the sensitivity allows for.
        """
        likely = math.floor(expected + 2 * math.sqrt(expected * (1 - rate))) + 1
        most = min(most or MAX_MICROBATCH, MAX_MICROBATCH)
        count = -(-likely // most)
        return cls(min(most, _round_up(-(-likely // count), MICROBATCH_BLOCK)), count)

    def padded(self, length: int) -> int:
        """The places of a batch of this length."""
        return max(self.count * self.size, _round_up(length, self.size))


def _round_up(length: int, block: int) -> int:
    return -(-length // block) * block


@dataclass(frozen=True)
class NoiseSpec:
    """The noise of a sum: the purpose that selects its stream, and standard deviations, [R]."""

    purpose: str
    deviation: Tensor


@dataclass(frozen=True)
class Batches:
    """The batches of r runs, padded to one width B.

    members: positions of these runs among the requested ones. indices: int64 [r, B]. present:
    False for padding, bool [r, B].
    """

    members: list[int]
    indices: Tensor
    present: Tensor


class BatchRNG:
    """Draws batches of `records` records, and noise, by run id, purpose and step.

    group: the processes among which batches and noise are divided; this one draws its part.
    microbatches: those among which the records of a batch are scattered. By default a batch is
    padded to the next `padded_length`.
    """

    def __init__(
        self,
        randomness: RandomSource,
        sampling: PoissonSampling,
        records: int,
        device: torch.device,
        group: ProcessGroup | None = None,
        microbatches: Microbatches | None = None,
    ) -> None:
        self.randomness, self.sampling, self.records = randomness, sampling, records
        self.device, self.group = device, group or ProcessGroup()
        self.microbatches = microbatches
        self.is_on_accelerator = device.type != "cpu"

    def batches(self, run_ids: Sequence[str], step: int) -> tuple[Tensor, Tensor]:
        """Indices, int64 [R, B], and which of them are present, bool [R, B]; the rest is padding.

        B is the width of the longest batch; padding has the index 0.
        """
        drawn = self._draw(run_ids, step)
        return self._pad(drawn, max(self._width(len(batch)) for batch, _ in drawn))

    def _draw(self, run_ids: Sequence[str], step: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The batch of each run, and the places of its records."""
        own = self.group.count_records(self.records)
        drawn = []
        for run_id in run_ids:
            words = self._words(run_id, "sampling", step)
            batch = self.group.to_dataset_indices(self.sampling.draw(own, words))
            drawn.append((batch, self._draw_places(run_id, step, len(batch))))
        return drawn

    def _draw_places(self, run_id: str, step: int, count: int) -> np.ndarray:
        if self.microbatches is None:
            return np.arange(count)
        words = self._words(run_id, "places", step)(self._width(count))
        return words.argsort(kind="stable")[:count]

    def _pad(
        self, drawn: Sequence[tuple[np.ndarray, np.ndarray]], width: int
    ) -> tuple[Tensor, Tensor]:
        indices = np.zeros((len(drawn), width), dtype=np.int64)
        present = np.zeros((len(drawn), width), dtype=bool)
        for run, (batch, places) in enumerate(drawn):
            indices[run, places], present[run, places] = batch, True
        return self._to_device(indices), self._to_device(present)

    def _to_device(self, values: np.ndarray) -> Tensor:
        """On an accelerator a copy for which neither the host nor running kernels wait."""
        held = torch.from_numpy(values)
        if self.device.type == "cuda":
            return held.pin_memory().to(self.device, non_blocking=True)
        return held.to(self.device)

    def batches_by_width(self, run_ids: Sequence[str], step: int) -> list[Batches]:
        """As `batches`, grouped by width: on a CPU each batch has the width it has without others.

        The rounding of a product may depend on its shape, and a run's result must not depend on
        the other runs. On an accelerator it depends on the number of runs anyway, so that all runs
        are one group, which is faster. Private batches are alone on a CPU: whether two of one width
        share a product must not depend on their records.
        """
        drawn = self._draw(run_ids, step)
        widths = [self._width(len(batch)) for batch, _ in drawn]
        groups: dict[tuple[int, int], list[int]] = {}
        for run, width in enumerate(widths):
            if self.device.type != "cpu":
                group = (max(widths), 0)
            else:
                group = (width, 0 if self.microbatches is None else run)
            groups.setdefault(group, []).append(run)
        return [
            Batches(members, *self._pad([drawn[run] for run in members], width))
            for (width, _), members in groups.items()
        ]

    def _width(self, length: int) -> int:
        if self.microbatches is not None:
            return self.microbatches.padded(length)
        return padded_length(length, self.device)

    def model_seed(self, run_id: str, step: int, number: int) -> int:
        """A seed for what a model draws at random in a forward pass (dropout), of 32 bits.

        It may come again, unlike noise: the masks say nothing of examples.
        """
        words = self._words(run_id, f"model/{number}", step)
        return int(words(1)[0]) & 0xFFFFFFFF

    def shuffle(self, run_id: str, step: int, purpose: str, values: np.ndarray) -> np.ndarray:
        """The values in random order, for what a user computes by themselves; it may come again."""
        words = self._words(run_id, f"shuffle/{purpose}", step)
        return values[words(len(values)).argsort(kind="stable")]

    def laplace(self, run_id: str, purpose: str, step: int, scale: float, count: int) -> np.ndarray:
        """Fresh Laplace noise of this scale, float64 [count]: differences of exponential numbers.

        Of 53 random bits each: a number is at most 37.4 times the scale.
        """
        words = self._words(run_id, f"laplace/{purpose}/{scale:.7g}", step)(2 * count) >> np.uint64(
            11
        )
        exponential = -np.log((words + 0.5) * 2.0**-53)
        return np.asarray(scale * (exponential[:count] - exponential[count:]))

    def _words(self, run_id: str, purpose: str, step: int) -> Words:
        return self.randomness.words(self.group.stream_name(run_id), purpose, step)

    def add_noise(
        self,
        run_ids: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        noise: Sequence[NoiseSpec],
    ) -> list[Tensor]:
        """Each total, [R, ...], plus this process's part of fresh noise (`RandomSource`)."""
        run_ids = [self.group.stream_name(run_id) for run_id in run_ids]
        share = self.group.noise_scale
        noise = [NoiseSpec(spec.purpose, spec.deviation * share) for spec in noise]
        if isinstance(self.randomness, Seeded) and not self.is_on_accelerator:
            return self._add_seeded_on_host(self.randomness, run_ids, step, totals, noise)
        noised = self.randomness.add_noise(
            run_ids,
            [spec.purpose for spec in noise],
            step,
            [total.reshape(len(run_ids), -1) for total in totals],
            [spec.deviation for spec in noise],
        )
        return [result.view(total.shape) for result, total in zip(noised, totals, strict=True)]

    def _add_seeded_on_host(
        self,
        randomness: Seeded,
        run_ids: Sequence[str],
        step: int,
        totals: Sequence[Tensor],
        noise: Sequence[NoiseSpec],
    ) -> list[Tensor]:
        """Block by block of each run's total, so that a block stays in the cache."""
        exact = [total.cpu().reshape(len(run_ids), -1).numpy() for total in totals]
        noised = [np.empty_like(rows) for rows in exact]
        deviations = [spec.deviation.tolist() for spec in noise]

        def add(index: int, run: int, block: int, columns: slice) -> None:
            values = exact[index][run, columns]
            numbers = np.empty(len(values))
            purpose = noise[index].purpose
            randomness.fill(numbers, run_ids[run], purpose, step, block)
            numbers *= deviations[index][run]
            numbers += values
            noised[index][run, columns] = numbers

        jobs = [
            (index, run, *block)
            for index, rows in enumerate(exact)
            for run in range(len(run_ids))
            for block in blocks(rows.shape[1])
        ]
        use_threads = sum(rows.size for rows in exact) > NOISE_BLOCK
        run_in_threads(add, jobs, torch.get_num_threads() if use_threads else 1)
        return [
            torch.from_numpy(rows).view(total.shape).to(total.device)
            for rows, total in zip(noised, totals, strict=True)
        ]
