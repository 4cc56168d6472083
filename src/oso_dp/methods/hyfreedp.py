"""HyFreeDP: normalised gradients, and a learning rate from noisy losses (Bu and Liu 2025).

Towards Hyperparameter-Free Optimization with Differential Privacy, ICLR 2025, arXiv 2503.00703.
Each K-th step asks for the batch's clipped losses where it stands and one step of the present rate
forth and back; the parabola through them has its least value at the next rate. Nothing is searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods.auto_s import AutoSSettings
from oso_dp.methods.base import Method, State, descend, heavy_ball, setting
from oso_dp.privacy.clipped_losses import ClippedLosses
from oso_dp.privacy.noise_split import gradient_noise_multiplier
from oso_dp.privacy.queries import AutomaticGradient

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers

_POINTS = 3


@dataclass(frozen=True)
class HyFreeDPSettings(AutoSSettings):
    initial_learning_rate: float = setting(1e-4, gt=0)  # eta_0
    initial_bound: float = setting(1.0, gt=0)  # R_l at first
    every: float = setting(5, ge=1, le=1e6)  # K, in steps
    gradient_noise: float = setting(1.01, gt=1)  # gamma: noise of gradients, times AUTO-S's


class HyFreeDP(Method):
    name = "hyfreedp"
    title = "HyFreeDP"
    search = ()
    sets_rate_first = True
    Settings = HyFreeDPSettings

    def starting_point(self, candidate: dict[str, float]) -> dict[str, float]:
        own = {"learning_rate": self.settings.initial_learning_rate, "threshold": 1.0}
        return {**own, **candidate}

    def split_noise(self, noise_multiplier: float, batch_size: int) -> tuple[float, float]:
        """Of the steps that ask for losses: nu_g, and nu_l of the losses.

        Over all steps the losses may cost what gamma takes from the gradients: 1 - gamma^-2 of a
        step. Every K-th step spends it at once, nu_l = nu (K (1 - gamma^-2))^(-1/2), and the other
        steps have nu to themselves.
        """
        if self.settings.every % 1 != 0:
            raise OsoError(f"{self.name}: every {self.settings.every:g}: must be a whole number")
        share = self.settings.every * (1 - self.settings.gradient_noise**-2)
        if not share < 1:
            raise OsoError(
                f"{self.name}: every {self.settings.every:g} at gradient_noise "
                f"{self.settings.gradient_noise:g}: the losses of a step would cost all of it or "
                "more; take fewer steps, or less noise"
            )
        losses = noise_multiplier * share**-0.5
        return gradient_noise_multiplier(noise_multiplier, losses), losses

    def queries(self, state: State) -> tuple[AutomaticGradient | ClippedLosses, ...]:
        stabiliser = self.settings.stabiliser
        if (state.step - 1) % int(self.settings.every) != 0:
            return (
                AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=stabiliser),
            )
        gradient_noise, losses_noise = self.split_noise(state.noise_multiplier, state.batch_size)
        return (
            AutomaticGradient(gradient_noise, state.threshold, stabiliser=stabiliser),
            ClippedLosses(losses_noise, self._bound(state), _POINTS),
        )

    def probes(self, state: State, answers: Answers) -> Tensor | None:
        """Here, a step forth and a step back."""
        import torch

        if (state.step - 1) % int(self.settings.every) != 0:
            return None
        direction = heavy_ball(state, answers[AutomaticGradient], self.momentum)
        step = state.learning_rate[:, None] * direction
        here = state.parameters
        return torch.stack([here, here - step, here + step], dim=1)

    def update(self, state: State, answers: Answers) -> None:
        if ClippedLosses in answers:
            self.learn(state, answers)
        descend(state, answers[AutomaticGradient], self.momentum)

    def learn(self, state: State, answers: Answers) -> None:
        here, forth, back = answers[ClippedLosses].unbind(dim=1)
        # L(theta - x v) is about L - b x + a x^2 / 2; here b and a are in units of the rate.
        slope, curvature = (back - forth) / 2, forth + back - 2 * here
        usable = (slope > 0) & (curvature > 0)
        factor = (slope / curvature).where(usable, 1.0)
        state.learning_rate = state.learning_rate * factor
        # A bound that is one mean of clipped losses could only fall; so it is the sum of the three.
        bound = here + forth + back
        state.memory["loss_bound"] = bound.where(bound > 0, self._bound(state))

    def _bound(self, state: State) -> Tensor:
        import torch

        first = torch.full_like(state.learning_rate, self.settings.initial_bound)
        return state.memory.get("loss_bound", first)
