"""Data-parallel training by the processes of a torch.distributed group.

Each process has a part of the examples, of every batch and of the noise: an example is in its
process's batch with the sampling rate, so it is in the whole batch with that rate; and the sum of W
normal numbers of variance sigma^2 / W has variance sigma^2. Only the sum over all processes is
released. So the guarantee is that of one process, except against the processes of the group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ProcessGroup:
    """This process, number `rank` of `count`."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """The default process group, or this process alone."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def noise_scale(self) -> float:
        """1 / sqrt(W): a process's noise deviation relative to the total's."""
        return 1 / math.sqrt(self.count)

    def count_records(self, records: int) -> int:
        """How many of the data set's records are this process's: every W-th."""
        return len(range(self.rank, records, self.count))

    def to_dataset_indices(self, own: np.ndarray) -> np.ndarray:
        """Indices in the data set, from those among this process's examples."""
        return own * self.count + self.rank

    def stream_name(self, run_id: str) -> str:
        """The run id that seeds this process's random numbers."""
        return run_id if self.count == 1 else f"{run_id}/rank {self.rank} of {self.count}"

    def all_reduce(self, totals: list[Tensor]) -> list[Tensor]:
        """The sums over all processes, in place."""
        if self.count > 1:
            import torch.distributed as dist

            for total in totals:
                dist.all_reduce(total)
        return totals

    def any_rank(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set in any process. device: of tensors that the backend can send."""
        if self.count == 1:
            return flag
        import torch

        (total,) = self.all_reduce([torch.tensor([float(flag)], device=device)])
        return bool(total > 0)

    def broadcast(self, values: Tensor) -> Tensor:
        """Rank 0's tensor, in place of this one."""
        if self.count > 1:
            import torch.distributed as dist

            dist.broadcast(values, 0)
        return values

    def all_gather(self, value: Any) -> list[Any]:
        """The plain values of all processes, by rank."""
        if self.count == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values
