"""AUTO-WOSM, a method of this project's own: nothing is left to search.

AUTO-S's weights bring every gradient to length 1, so that there is no C (Bu et al. 2023). As in
AdamWOSM the step divides by the noise's known standard deviation (Mohapatra et al. 2022), but by
that in the averaged gradient, which the step follows: so that alpha is what the noise moves each
parameter by in each step, whatever the model, the batch size and the budget are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods.base import Method, MethodOptions, State, option
from oso_dp.privacy.queries import AutomaticGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class AutoWOSMOptions(MethodOptions):
    learning_rate: float = option(1e-3, gt=0)  # alpha
    beta1: float = option(0.9, ge=0, lt=1)
    stabiliser: float = option(0.01, ge=1e-6, le=1e6)  # gamma of AUTO-S


class AutoWOSM(Method):
    name = "auto_wosm"
    title = "AUTO-WOSM"
    search = ()
    Options = AutoWOSMOptions

    @property
    def uses_momentum(self) -> bool:
        return False  # beta1 is its own

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        fixed = {"learning_rate": self.options.learning_rate, "threshold": 1.0}
        return {**candidate, **fixed}

    def queries(self, state: State) -> tuple[AutomaticGradient]:
        if not state.noise_multiplier > 0:
            raise OsoError("noise_multiplier: 0; must be > 0 for auto_wosm, which divides by it")
        gamma = self.options.stabiliser
        return (AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=gamma),)

    def update(self, state: State, answers: Answers) -> None:
        gradient, beta1 = answers[AutomaticGradient], self.options.beta1
        mean = state.buffers.get("mean", gradient.new_zeros(gradient.shape))
        mean = beta1 * mean + (1 - beta1) * gradient
        state.buffers["mean"] = mean
        # Of the weights (1 - beta1) beta1^i that the last t gradients have in the average.
        squares = (1 - beta1) / (1 + beta1) * (1 - beta1 ** (2 * state.step))
        noise_std = state.noise_multiplier * state.threshold / state.batch_size
        step_size = state.learning_rate / (noise_std * math.sqrt(squares))
        state.parameters -= step_size[:, None] * mean
