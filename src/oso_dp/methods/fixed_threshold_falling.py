"""FixedThreshold with a threshold that falls exponentially, whatever the data are.

Thakkar et al. (2019) cite that clipping lower after some rounds of federated averaging raises the
accuracy; updates become shorter as the training converges. The default decay suits a hundred
rounds: it leaves 37 % of C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.methods.base import MethodOptions, State, option
from oso_dp.methods.fixed_threshold import FixedThreshold

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class FixedThresholdFallingOptions(MethodOptions):
    threshold_decay: float = option(0.99, gt=0, le=1)  # of C in each step


class FixedThresholdFalling(FixedThreshold):
    name = "fixed_threshold_falling"
    title = "FixedThreshold, falling"
    Options = FixedThresholdFallingOptions

    def update(self, state: State, answers: Answers) -> None:
        super().update(state, answers)
        self.adapt_hyperparameters(state, answers)

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:
        state.threshold = state.threshold * self.options.threshold_decay
