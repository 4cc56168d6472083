"""The mechanism's random numbers for R runs at once: batches of different sizes, and noise.

Batches are drawn on the host: a few thousand words each, and everybody knows their lengths without
asking the device. Noise is drawn where it is added, but only if it is seeded: the system's entropy
is the host's.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oso_dp.privacy import philox
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.streams import Randomness, Seeded

# Batches are padded to a multiple of this, so that few shapes occur: what is freed by one step then
# fits the next. With every size different, the heap of a long run on a CPU grew fivefold.
BLOCK = 64


class RandomNumbers:
    """Of `examples` examples; every number is drawn for a run's identity, a purpose and a step."""

    def __init__(
        self,
        randomness: Randomness,
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

    def normals(
        self, run_ids: Sequence[str], purpose: str, step: int, shape: tuple[int, ...]
    ) -> Tensor:
        """Standard normal numbers, float64 [R, *shape]."""
        if self._on_device:
            count = int(np.prod(shape))
            drawn = philox.normals(run_ids, purpose, step, count, self.device)
            return drawn.view(len(run_ids), *shape)
        threads = torch.get_num_threads()
        numbers = self.randomness.normals(run_ids, purpose, step, tuple(shape), threads)
        return torch.from_numpy(numbers).to(self.device)
