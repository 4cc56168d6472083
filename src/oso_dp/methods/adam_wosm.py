"""AdamWOSM: Adam without the second moment, whose step adapts to the noise (Mohapatra et al. 2022).

As its authors' public code computes it: the second moment is replaced by the noise's own, known
standard deviation nu C / B, so that only C is searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods.base import Method, MethodOptions, State, option
from oso_dp.privacy.queries import ClippedGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class AdamWOSMOptions(MethodOptions):
    learning_rate: float = option(1e-3, gt=0)  # alpha
    beta1: float = option(0.9, ge=0, lt=1)
    stabiliser: float = option(1e-8, gt=0)


class AdamWOSM(Method):
    name = "adam_wosm"
    title = "AdamWOSM"
    search = ("threshold",)
    Options = AdamWOSMOptions

    @property
    def uses_momentum(self) -> bool:
        return False  # beta1 is its own

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "learning_rate": self.options.learning_rate}

    def queries(self, state: State) -> tuple[ClippedGradient]:
        if not state.noise_multiplier > 0:
            raise OsoError("noise_multiplier: 0; must be > 0 for adam_wosm, which divides by it")
        return (ClippedGradient(state.noise_multiplier, state.threshold),)

    def update(self, state: State, answers: Answers) -> None:
        gradient, beta1 = answers[ClippedGradient], self.options.beta1
        mean = state.buffers.get("mean", gradient.new_zeros(gradient.shape))
        mean = beta1 * mean + (1 - beta1) * gradient
        state.buffers["mean"] = mean
        noise_std = state.noise_multiplier * state.threshold / state.batch_size
        step_size = state.learning_rate / (noise_std + self.options.stabiliser)
        state.parameters -= step_size[:, None] * mean / (1 - beta1**state.step)
