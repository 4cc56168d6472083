"""AUTO-DoG, a method of this project's own: nothing is left to search, nor is a schedule.

AUTO-S's weights bring every gradient to length 1, so that there is no C (Bu et al. 2023). The
learning rate is distance over gradients, weighted by distance (Ivgi et al. 2023; Khaled et al.
2023): with r_t the farthest that theta has been from where it began,

    rho_t = scale r_t^2 / sqrt(sum_{i <= t} r_i^2 |g_i|^2)

Of noisy gradients that rule goes astray: noise alone drives the distance, and fills the sum. But
the noise's part of both is known. With sigma = nu C / B, a gradient has P sigma^2 of it, and the
distance P sigma^2 sum rho_i^2; each is taken off, with `certainty` standard deviations of it on the
careful side. What is left is the signal's. It reads sanitized gradients and public numbers alone.
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
    first_distance: float = option(0.1, gt=0)  # r_0 over the length of the first weights
    scale: float = option(0.5, gt=0)
    certainty: float = option(3.0, gt=0)  # standard deviations
    stabiliser: float = option(0.01, ge=1e-6, le=1e6)  # gamma of AUTO-S


class AutoDog(Method):
    """`learning_rate`, of a run as of its rows, is that of the step that was taken last."""

    name = "auto_dog"
    title = "AUTO-DoG"
    search = ()
    updates_rate_first = True
    supports_schedule = False
    Options = AutoDogOptions

    @property
    def uses_momentum(self) -> bool:
        return False  # its rate is that of plain steps

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        # A rate that stands there before there is one.
        fixed = {"learning_rate": self.options.first_distance, "threshold": 1.0}
        return {**candidate, **fixed}

    def queries(self, state: State) -> tuple[AutomaticGradient]:
        if not state.noise_multiplier > 0:
            raise OsoError("auto_dog: noise multiplier 0: must be > 0, its noise is what it knows")
        gamma = self.options.stabiliser
        return (AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=gamma),)

    def update(self, state: State, answers: Answers) -> None:
        gradient, memory, settings = answers[AutomaticGradient], state.buffers, self.options
        size = gradient.shape[1]
        deviation = math.sqrt(2 * size)  # of a sum of P squared standard normals
        variance = (state.noise_multiplier * state.threshold.double() / state.batch_size) ** 2
        if not memory:
            length = _squared(state.parameters).sqrt()
            none = length.new_zeros(length.shape)
            memory["first"] = state.parameters.clone()
            memory["distance"] = settings.first_distance * length.where(length > 0, none + 1)  # r
            memory["noise"] = none  # of each coordinate of theta: its variance
            memory["gradients"] = none  # the signal's part of the sum
            memory["spread"] = none  # the variance of what is taken off there
        next_threshold = _squared(state.parameters - memory["first"])
        most = memory["noise"] * (size + settings.certainty * deviation)
        signal = (next_threshold - most).clamp(min=0).sqrt()
        distance = signal.maximum(memory["distance"])
        square = distance**2
        gradients = memory["gradients"] + square * (_squared(gradient) - size * variance)
        spread = memory["spread"] + (square * deviation * variance) ** 2
        below = gradients.clamp(min=0) + settings.certainty * spread.sqrt()
        rate = settings.scale * square / below.sqrt()
        state.buffers |= {
            "distance": distance,
            "noise": memory["noise"] + rate**2 * variance,
            "gradients": gradients,
            "spread": spread,
        }
        state.learning_rate = rate.to(state.learning_rate.dtype)
        state.parameters -= state.learning_rate[:, None] * gradient


def _squared(vectors: Tensor) -> Tensor:
    """Of [R, P] the squared lengths, [R], in float64: the noise is nearly all of them."""
    import torch

    return torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64) ** 2
