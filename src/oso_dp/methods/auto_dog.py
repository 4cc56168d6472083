"""AUTO-DoG, a method of this project without hyperparameters to search and without a schedule.

AUTO-S's weights normalise each gradient, so there is no C (Bu et al. 2023). The learning rate is
distance over gradients, weighted by distance (Ivgi et al. 2023; Khaled et al. 2023): with r_t the
largest distance of theta from its initial value so far,

    rho_t = scale r_t^2 / sqrt(sum_{i <= t} r_i^2 |g_i|^2)

With noisy gradients this rule fails: noise dominates the distance and the sum. But the expected
contribution of the noise is known. With sigma = nu C / B, it is P sigma^2 in a squared gradient
norm, and P sigma^2 sum rho_i^2 in the squared distance. Both are subtracted, with `certainty`
standard deviations in the conservative direction; the rest is the signal. The rule uses sanitized
gradients and public numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods.base import Method, MethodOptions, State, option
from oso_dp.privacy.queries import AutomaticGradient

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class AutoDogOptions(MethodOptions):
    first_distance: float = option(0.1, gt=0)  # r_0 over the norm of the initial weights
    scale: float = option(0.5, gt=0)
    certainty: float = option(3.0, gt=0)  # standard deviations
    stabiliser: float = option(0.01, ge=1e-6, le=1e6)  # gamma of AUTO-S


class AutoDog(Method):
    """`learning_rate` of a state, and of the result rows, is that of the last step taken."""

    name = "auto_dog"
    title = "AUTO-DoG"
    search = ()
    updates_rate_first = True
    supports_schedule = False
    Options = AutoDogOptions

    @property
    def uses_momentum(self) -> bool:
        return False  # its rate is derived for steps without momentum

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        # A placeholder for the learning rate before the first step.
        fixed = {"learning_rate": self.options.first_distance, "threshold": 1.0}
        return {**candidate, **fixed}

    def queries(self, state: State) -> tuple[AutomaticGradient]:
        if not state.noise_multiplier > 0:
            raise OsoError("noise_multiplier: 0; must be > 0 for auto_dog, which corrects for it")
        gamma = self.options.stabiliser
        return (AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=gamma),)

    def update(self, state: State, answers: Answers) -> None:
        gradient, memory, settings = answers[AutomaticGradient], state.buffers, self.options
        size = gradient.shape[1]
        deviation = math.sqrt(2 * size)  # of a sum of P squared standard normals
        variance = (state.noise_multiplier * state.threshold.double() / state.batch_size) ** 2
        if not memory:
            length = _squared_norm(state.parameters).sqrt()
            zeros = length.new_zeros(length.shape)
            memory["first"] = state.parameters.clone()
            memory["distance"] = settings.first_distance * length.where(length > 0, zeros + 1)  # r
            memory["noise"] = zeros  # its variance in each coordinate of theta
            memory["gradients"] = zeros  # the sum of r_i^2 |g_i|^2 without the noise
            memory["spread"] = zeros  # the variance of what was subtracted from that sum
        moved = _squared_norm(state.parameters - memory["first"])
        noise_bound = memory["noise"] * (size + settings.certainty * deviation)
        signal = (moved - noise_bound).clamp(min=0).sqrt()
        distance = signal.maximum(memory["distance"])
        square = distance**2
        gradients = memory["gradients"] + square * (_squared_norm(gradient) - size * variance)
        spread = memory["spread"] + (square * deviation * variance) ** 2
        denominator = gradients.clamp(min=0) + settings.certainty * spread.sqrt()
        rate = settings.scale * square / denominator.sqrt()
        state.buffers |= {
            "distance": distance,
            "noise": memory["noise"] + rate**2 * variance,
            "gradients": gradients,
            "spread": spread,
        }
        state.learning_rate = rate.to(state.learning_rate.dtype)
        state.parameters -= state.learning_rate[:, None] * gradient


def _squared_norm(vectors: Tensor) -> Tensor:
    """[R, P] -> [R], in float64: noise is nearly all of it, and is subtracted."""
    import torch

    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64) ** 2
