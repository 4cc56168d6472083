"""FixedThreshold: DP-SGD with a constant clipping threshold (Abadi et al. 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from oso_dp.methods.base import Method, State, descend
from oso_dp.privacy.queries import ClippedGradient

if TYPE_CHECKING:
    from torch import Tensor


class FixedThreshold(Method):
    name = "fixed_threshold"
    title = "FixedThreshold"
    search: ClassVar[tuple[str, ...]] = ("learning_rate", "threshold")

    def queries(self, state: State) -> tuple[ClippedGradient]:
        assert state.threshold is not None
        return (ClippedGradient(state.noise_multiplier, state.threshold),)

    def update(self, state: State, answers: dict[str, Tensor]) -> None:
        descend(state, answers["clipped_gradient"], self.momentum)
