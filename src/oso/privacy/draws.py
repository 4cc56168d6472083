"""The mechanism's random numbers for R runs at once: batches of different sizes, and noise.

On a CPU each run draws from the host's source. On an accelerator, seeded streams are drawn there.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oso.privacy import philox
from oso.privacy.sampling import PoissonSampling
from oso.privacy.streams import Randomness, Seeded

# Batches are padded to a multiple of this, so that few shapes occur: what is freed by one step then
# fits the next. With every size different, the heap of a long run on a CPU grew fivefold.
BLOCK = 64


class Draws:
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
        self._there = device.type != "cpu" and isinstance(randomness, Seeded)

    def batch(self, run_id: str, step: int) -> Tensor:
        """The indices of one run's batch, int64 [B]."""
        if self._there:
            indices, present = self.batches([run_id], step)
            return indices[present]
        uniforms = self.randomness.uniforms(run_id, "sampling", step, (self.examples,))
        return torch.from_numpy(self.sampling.draw(uniforms)).to(self.device)

    def batches(self, run_ids: Sequence[str], step: int) -> tuple[Tensor, Tensor]:
        """Indices, int64 [R, B], and which of them are a run's own, bool [R, B].

        As wide as the longest batch needs, so that none overflows; the others are padded with the
        index 0, which is not their own.
        """
        if self._there:
            uniforms = philox.uniforms(run_ids, "sampling", step, self.examples, self.device)
            return padded(self.sampling.takes(uniforms))
        each = [self.batch(run_id, step) for run_id in run_ids]
        sizes = torch.tensor([len(batch) for batch in each], device=self.device)
        present = _present(sizes)
        indices = torch.zeros(present.shape, dtype=torch.int64, device=self.device)
        indices[present] = torch.cat(each)
        return indices, present

    def normals(
        self, run_ids: Sequence[str], purpose: str, step: int, shape: tuple[int, ...]
    ) -> Tensor:
        """Standard normal numbers, float64 [R, *shape]."""
        if self._there:
            count = int(np.prod(shape))
            drawn = philox.normals(run_ids, purpose, step, count, self.device)
            return drawn.view(len(run_ids), *shape)
        each = [self.randomness.normals(run_id, purpose, step, shape) for run_id in run_ids]
        return torch.from_numpy(each[0][None] if len(each) == 1 else np.stack(each)).to(self.device)


def padded(taken: Tensor) -> tuple[Tensor, Tensor]:
    """From who takes part, bool [R, n]: indices and presence, [R, a multiple of BLOCK]."""
    present = _present(taken.sum(dim=1))
    indices = torch.zeros(present.shape, dtype=torch.int64, device=taken.device)
    indices[present] = taken.nonzero()[:, 1]  # one run's after the other's
    return indices, present


def _present(sizes: Tensor) -> Tensor:
    width = -(-int(sizes.max()) // BLOCK) * BLOCK
    return torch.arange(width, device=sizes.device) < sizes[:, None]
