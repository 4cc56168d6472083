"""Online by plain gradient descent on C and rho (Galli et al. 2024, equations 13 and 16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oso_dp.methods.online import Online, dot
from oso_dp.privacy.queries import SMALLEST_THRESHOLD

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.methods.base import State


class OnlineAdditive(Online):
    """A step that would take C or rho below what they may be ends at the least there is."""

    name = "online_additive"
    title = "Online, additive"

    def adapt(
        self, state: State, gradient: Tensor, past_gradient: Tensor, past_direction: Tensor
    ) -> None:
        rho = state.learning_rate
        # Equation (13)
        toward_direction = rho * dot(gradient, past_direction)
        threshold = state.threshold + self.options.threshold_rate * toward_direction
        state.threshold = threshold.clamp(min=SMALLEST_THRESHOLD)
        # Equation (16)
        toward_gradient = rho * dot(gradient, past_gradient)
        learning_rate = rho + self.options.learning_rate_rate * toward_gradient
        state.learning_rate = learning_rate.clamp(min=0.0)
