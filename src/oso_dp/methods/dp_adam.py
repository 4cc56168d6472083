"""DP-Adam: Adam on sanitized gradients, the square of each coordinate's average included.

Where noise is most of a gradient, its square is the noise's variance everywhere, and DP-Adam is
AdamWOSM (Mohapatra et al. 2022). Where the signal is larger than the noise, its steps are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.methods.base import Method, MethodOptions, State, adam_step, option
from oso_dp.privacy.queries import ClippedGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class DPAdamOptions(MethodOptions):
    learning_rate: float = option(1e-3, gt=0)  # alpha
    beta1: float = option(0.9, ge=0, lt=1)
    beta2: float = option(0.999, ge=0, lt=1)
    stabiliser: float = option(1e-8, gt=0)


class DPAdam(Method):
    name = "dp_adam"
    title = "DP-Adam"
    search = ("threshold",)
    Options = DPAdamOptions

    @property
    def uses_momentum(self) -> bool:
        return False  # beta1 is its own

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "learning_rate": self.options.learning_rate}

    def queries(self, state: State) -> tuple[ClippedGradient]:
        return (ClippedGradient(state.noise_multiplier, state.threshold),)

    def update(self, state: State, answers: Answers) -> None:
        options = self.options
        adam_step(state, answers[ClippedGradient], options.beta1, options.beta2, options.stabiliser)
