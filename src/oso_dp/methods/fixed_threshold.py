"""FixedThreshold: DP-SGD with a constant threshold (Abadi et al. 2016), and two variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from oso_dp.methods.base import Method, MethodOptions, State, gradient_step, option
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


@dataclass(frozen=True)
class FixedThresholdFallingOptions(MethodOptions):
    threshold_decay: float = option(0.99, gt=0, le=1)  # of C in each step


class FixedThresholdFalling(FixedThreshold):
    """A threshold that falls exponentially, independently of the data.

    Thakkar et al. (2019) cite that clipping lower after some rounds of federated averaging raises
    the accuracy; updates become shorter as the training converges. The default decay suits a
    hundred rounds: it leaves 37 % of C.
    """

    name = "fixed_threshold_falling"
    title = "FixedThreshold, falling"
    Options = FixedThresholdFallingOptions

    def update(self, state: State, answers: Answers) -> None:
        super().update(state, answers)
        self.adapt_hyperparameters(state, answers)

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:
        state.threshold = state.threshold * self.options.threshold_decay


@dataclass(frozen=True)
class FixedThresholdPresetOptions(MethodOptions):
    threshold: float = option(0.1, gt=0)  # Online's C_0


class FixedThresholdPreset(FixedThreshold):
    """A control with C set beforehand, so that its grid costs what Online's does."""

    name = "fixed_threshold_preset"
    title = "FixedThreshold, C set beforehand"
    search = ("learning_rate",)
    Options = FixedThresholdPresetOptions

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "threshold": self.options.threshold}
