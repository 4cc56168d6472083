"""The sum of clipped losses at a few points, over the batch whose gradient was released before.

A method may choose the points by the sanitized gradient of the same step: Gaussian sums over one
batch, each asked for in the light of the answers before it, cost no more together than all at once
(docs/privacy.md, "Losses").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.privacy.queries import LARGEST_THRESHOLD, SMALLEST_THRESHOLD, Query

if TYPE_CHECKING:  # declarations stay importable without torch's start-up time
    from torch import Tensor

    from oso_dp.privacy.queries import Runs


@dataclass(frozen=True)
class ClippedLosses(Query):
    """sum_i min(max(L_i(theta_j), 0), R) at J points theta_j, as a vector [J] of each run.

    `bound`: R of all runs, [R]; `points`: J. Adding or removing an example changes each of the J
    sums by at most R, in one direction, so that the sensitivity is sqrt(J) R. An example whose loss
    at the first point is not finite adds nothing; at the others such a loss counts as R.
    """

    bound: Tensor
    points: int
    kind = "clipped_losses"

    def sensitivity(self, runs: Runs) -> Tensor:
        return math.sqrt(self.points) * self._bound(runs)

    def clipped(self, losses: Tensor, present: Tensor, runs: Runs) -> Tensor:
        """What each example adds, float64 [R, J, B], of losses [R, J, B].

        Nothing where it is not `present`, bool [R, B].
        """
        bound = self._bound(runs)[:, None, None]
        counts = (present & losses[:, 0].isfinite())[:, None]
        whole = losses.double().where(losses.isfinite(), bound)
        return whole.clamp(min=0.0).minimum(bound).masked_fill(~counts, 0.0)

    def _bound(self, runs: Runs) -> Tensor:
        return self.bound[runs].double().clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)
