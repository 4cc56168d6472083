"""FixedQuantile whose threshold moves by additive steps (Thakkar et al. 2019, section 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oso_dp.methods.fixed_quantile import FixedQuantile
from oso_dp.privacy.queries import SMALLEST_THRESHOLD

if TYPE_CHECKING:
    from torch import Tensor


class FixedQuantileLinear(FixedQuantile):
    name = "fixed_quantile_linear"
    title = "FixedQuantile, linear"

    def next_threshold(self, threshold: Tensor, excess: Tensor) -> Tensor:
        """C - eta_C (b~ - gamma); a step that overshoots zero ends at the least C there is."""
        return (threshold - self.options.quantile_rate * excess).clamp(min=SMALLEST_THRESHOLD)
