"""FixedQuantile: the threshold follows a quantile of the gradient norms (Andrew et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.errors import OsoError
from oso_dp.methods.base import Method, MethodOptions, State, gradient_step, option
from oso_dp.privacy.noise_composition import gradient_noise_multiplier
from oso_dp.privacy.queries import SMALLEST_THRESHOLD, ClippedGradient, UnclippedCount

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class FixedQuantileOptions(MethodOptions):
    initial_threshold: float = option(0.1, gt=0)  # C_0
    quantile_rate: float = option(0.2, ge=0)  # eta_C
    count_noise: float = option(0.05, gt=0)  # sigma_b as a share of the expected batch size


class FixedQuantile(Method):
    name = "fixed_quantile"
    title = "FixedQuantile"
    search = ("learning_rate", "quantile")
    Options = FixedQuantileOptions

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        if "quantile" not in candidate:  # without one, C would be NaN after a step
            raise OsoError(f"quantile: not set; method {self.name!r} needs it, search or set it")
        return {**candidate, "threshold": self.options.initial_threshold}

    def split_noise(self, noise_multiplier: float, batch_size: int) -> tuple[float, float]:
        """nu_Delta = (nu^-2 - (2 sigma_b)^-2)^(-1/2) (Andrew et al., Theorem 1).

        The count's sensitivity is 1/2, so that its noise multiplier is 2 sigma_b.
        """
        count_noise = 2 * self.options.count_noise * batch_size
        if not count_noise > noise_multiplier:
            least = noise_multiplier / (2 * batch_size)
            raise OsoError(
                f"count_noise: {self.options.count_noise:g}; must be > {least:.4g}, the step's "
                "noise multiplier over twice the batch size; raise it, or take a larger batch"
            )
        return gradient_noise_multiplier(noise_multiplier, count_noise), count_noise

    def queries(self, state: State) -> tuple[ClippedGradient | UnclippedCount, ...]:
        gradient_noise, count_noise = self.split_noise(state.noise_multiplier, state.batch_size)
        return (
            ClippedGradient(gradient_noise, state.threshold),
            UnclippedCount(count_noise, state.threshold),
        )

    def update(self, state: State, answers: Answers) -> None:
        gradient_step(state, answers[ClippedGradient], self.momentum)
        self.adapt_hyperparameters(state, answers)

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:
        unclipped = answers[UnclippedCount] + 0.5  # b~: undo the count's centring
        state.buffers["unclipped"] = unclipped
        # C moves after its batch was clipped with the old value.
        state.threshold = self.next_threshold(state.threshold, unclipped - state.quantile)

    def next_threshold(self, threshold: Tensor, excess: Tensor) -> Tensor:
        """The next C, from how much more than gamma of the batch was unclipped (same shapes)."""
        return threshold * (-self.options.quantile_rate * excess).exp()

    def fraction_clipped(self, state: State) -> Tensor | None:
        unclipped = state.buffers.get("unclipped")
        return None if unclipped is None else 1 - unclipped


class FixedQuantileLinear(FixedQuantile):
    """The threshold moves by additive steps (Thakkar et al. 2019, section 2.1)."""

    name = "fixed_quantile_linear"
    title = "FixedQuantile, linear"

    def next_threshold(self, threshold: Tensor, excess: Tensor) -> Tensor:
        """C - eta_C (b~ - gamma); a step that overshoots zero ends at the least C there is."""
        return (threshold - self.options.quantile_rate * excess).clamp(min=SMALLEST_THRESHOLD)
