"""FixedThreshold: DP-SGD with a constant clipping threshold (Abadi et al. 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from oso_dp.methods.base import Method, State, gradient_step
from oso_dp.privacy.queries import ClippedGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


class FixedThreshold(Method):
    name = "fixed_threshold"
    title = "FixedThreshold"
    search: ClassVar[tuple[str, ...]] = ("learning_rate", "threshold")

    def queries(self, state: State) -> tuple[ClippedGradient]:
        return (ClippedGradient(state.noise_multiplier, state.threshold),)

    def update(self, state: State, answers: Answers) -> None:
        gradient_step(state, answers[ClippedGradient], self.momentum)
