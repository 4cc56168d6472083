"""Online: OSO-DPSGD, which learns C and rho while it trains (Galli et al. 2024, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oso_dp.defaults import QUERY_NOISE_RATIO
from oso_dp.methods.base import Method, MethodOptions, State, gradient_step, option
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class OnlineOptions(MethodOptions):
    initial_threshold: float = option(0.1, gt=0)  # C_0
    threshold_rate: float = option(2.5e-3, ge=0)  # rho_c
    learning_rate_rate: float = option(2.5e-3, ge=0)  # rho_r
    query_noise_ratio: float = option(QUERY_NOISE_RATIO, gt=1)


class Online(Method):
    name = "online"
    title = "Online"
    search = ("learning_rate",)
    Options = OnlineOptions

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "threshold": self.options.initial_threshold}

    def split_noise(self, noise_multiplier: float, batch_size: int) -> tuple[float, float]:
        """Proposition 1: nu_g from nu and nu_q."""
        query_noise = self.options.query_noise_ratio * noise_multiplier
        return gradient_noise_multiplier(noise_multiplier, query_noise), query_noise

    def queries(self, state: State) -> tuple[ClippedGradient, ClippedDirection]:
        gradient_noise, query_noise = self.split_noise(state.noise_multiplier, state.batch_size)
        return (
            ClippedGradient(gradient_noise, state.threshold),  # g~, equation (18)
            ClippedDirection(query_noise, state.threshold),  # q~, equations (11) and (17)
        )

    def update(self, state: State, answers: Answers) -> None:
        gradient_step(state, answers[ClippedGradient], self.momentum)  # with rho_t
        self.adapt_hyperparameters(state, answers)  # C and rho move afterwards

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:
        gradient, direction = answers[ClippedGradient], answers[ClippedDirection]
        memory = state.buffers
        if "gradient" in memory:  # at t = 1 there is no past step: q~_0 = g~_0 = 0
            self.adapt(state, gradient, memory["gradient"], memory["direction"])
        memory["gradient"], memory["direction"] = gradient, direction

    def adapt(
        self, state: State, gradient: Tensor, past_gradient: Tensor, past_direction: Tensor
    ) -> None:
        """Move C and rho, from g~_t, g~_{t-1} and q~_{t-1}, each [R, P]."""
        toward_direction = dot(gradient, past_direction).sign()
        toward_gradient = dot(gradient, past_gradient).sign()
        # Equation (20)
        state.threshold = state.threshold * (self.options.threshold_rate * toward_direction).exp()
        # Equation (21)
        state.learning_rate = (
            state.learning_rate * (self.options.learning_rate_rate * toward_gradient).exp()
        )


def is_plain_sgd(optimizer: Any) -> bool:
    """Whether a torch optimizer is SGD as in Algorithm 1, with or without plain momentum.

    Equation (21), which adapts rho, is derived for no other.
    """
    import torch

    plain = ("weight_decay", "dampening", "nesterov")
    return type(optimizer) is torch.optim.SGD and not any(
        group[name] for group in optimizer.param_groups for name in plain
    )


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each run's vectors: [R, P] and [R, P] to [R]."""
    return (a * b).sum(dim=1)
