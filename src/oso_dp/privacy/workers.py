"""The processes that train one model together (torch.distributed).

Each has its part of the examples, of every batch and of the noise: an example is in its worker's
batch with the sampling rate, so it is in the whole batch with that rate; and the sum of W normal
numbers of variance sigma^2 / W has variance sigma^2. Only the sum over all workers leaves them. So
the guarantee is that of one process, towards everybody but the workers themselves.
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
class Workers:
    """This process, number `rank` of `count`."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Workers:
        """Those of the default process group, if there is one."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def noise_share(self) -> float:
        """The part of the noise's deviation that each worker adds."""
        return 1 / math.sqrt(self.count)

    def number_of_examples(self, examples: int) -> int:
        """How many of the data set's examples are this worker's: every W-th."""
        return len(range(self.rank, examples, self.count))

    def indices(self, own: np.ndarray) -> np.ndarray:
        """In the data set, of this worker's examples."""
        return own * self.count + self.rank

    def stream(self, run_id: str) -> str:
        """The name of this worker's random numbers."""
        return run_id if self.count == 1 else f"{run_id}/worker {self.rank} of {self.count}"

    def add_up(self, totals: list[Tensor]) -> list[Tensor]:
        """The sums over all workers, in place."""
        if self.count > 1:
            import torch.distributed as dist

            for total in totals:
                dist.all_reduce(total)
        return totals

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether it is set in one of them; `device`: what the group's backend communicates."""
        if self.count == 1:
            return flag
        import torch

        (total,) = self.add_up([torch.tensor([float(flag)], device=device)])
        return bool(total > 0)

    def from_first(self, values: Tensor) -> Tensor:
        """The first worker's tensor, in place of this one's."""
        if self.count > 1:
            import torch.distributed as dist

            dist.broadcast(values, 0)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Each worker's value, a plain one."""
        if self.count == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values
