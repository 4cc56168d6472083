"""AUTO-WOSM, a method of this project's own: nothing is left to search.

AUTO-S's weights bring every gradient to length 1, so that there is no C (Bu et al. 2023).
AdamWOSM's step divides by the noise's known standard deviation, so that the learning rate is Adam's
usual one (Mohapatra et al. 2022). Of each parameter's movement in a step, the noise's part then has
the same size, a share of alpha, whatever the model, the batch size and the budget are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.methods.adam_wosm import AdamWOSM, AdamWOSMSettings
from oso_dp.methods.base import State, setting
from oso_dp.privacy.queries import AutomaticGradient, ClippedGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query


@dataclass(frozen=True)
class AutoWOSMSettings(AdamWOSMSettings):
    weight_stabiliser: float = setting(0.01, ge=1e-6, le=1e6)  # gamma of AUTO-S


class AutoWOSM(AdamWOSM):
    name = "auto_wosm"
    title = "AUTO-WOSM"
    search = ()
    Settings = AutoWOSMSettings

    def starting_point(self, candidate: dict[str, float]) -> dict[str, float]:
        return super().starting_point({**candidate, "threshold": 1.0})

    def queries(self, state: State) -> tuple[Query, ...]:
        (clipped,) = super().queries(state)
        gamma = self.settings.weight_stabiliser
        return (AutomaticGradient(clipped.noise_multiplier, state.threshold, stabiliser=gamma),)

    def update(self, state: State, answers: Answers) -> None:
        super().update(state, {ClippedGradient: answers[AutomaticGradient]})
