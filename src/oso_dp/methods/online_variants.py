"""Variants of Online: other rules for C and rho, and controls that learn one of the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oso_dp.methods.base import option
from oso_dp.methods.online import Online, OnlineOptions, dot
from oso_dp.privacy.queries import SMALLEST_THRESHOLD

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.methods.base import State


class OnlineAdditive(Online):
    """By plain gradient descent on C and rho (Galli et al. 2024, equations 13 and 16).

    A step that would take C or rho below its least value ends at that value.
    """

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


@dataclass(frozen=True)
class OnlineScaleInvariantOptions(OnlineOptions):
    threshold_rate: float = option(2.5e-3, ge=0, lt=1)  # rho_c; from 1 on, C could change its sign
    learning_rate_rate: float = option(2.5e-3, ge=0, lt=1)  # rho_r


class OnlineScaleInvariant(Online):
    """By steps in proportion to C and to a cosine (Galli et al. 2024, equation 19).

    The paper states the rule for C; rho follows the same one, with the cosine of its own two
    vectors.
    """

    name = "online_scale_invariant"
    title = "Online, scale-invariant"
    Options = OnlineScaleInvariantOptions

    def adapt(
        self, state: State, gradient: Tensor, past_gradient: Tensor, past_direction: Tensor
    ) -> None:
        # Equation (19)
        toward_direction = _cosine(gradient, past_direction)
        state.threshold = state.threshold * (1 + self.options.threshold_rate * toward_direction)
        toward_gradient = _cosine(gradient, past_gradient)
        state.learning_rate = state.learning_rate * (
            1 + self.options.learning_rate_rate * toward_gradient
        )


@dataclass(frozen=True)
class OnlineFrozenLearningRateOptions(OnlineOptions):
    learning_rate_rate: float = option(0.0, ge=0, le=0)  # rho_r


class OnlineFrozenLearningRate(Online):
    """A control that learns C alone. It pays for both sums, so that nothing else differs."""

    name = "online_frozen_learning_rate"
    title = "Online, rho frozen"
    Options = OnlineFrozenLearningRateOptions


@dataclass(frozen=True)
class OnlineFrozenThresholdOptions(OnlineOptions):
    threshold_rate: float = option(0.0, ge=0, le=0)  # rho_c


class OnlineFrozenThreshold(Online):
    """A control that learns rho alone. It pays for both sums, so that nothing else differs."""

    name = "online_frozen_threshold"
    title = "Online, C frozen"
    Options = OnlineFrozenThresholdOptions


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine between each run's vectors, [R]; 0 where one of them is zero."""
    cosine = dot(a, b) / (a.norm(dim=1) * b.norm(dim=1))
    return cosine.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(-1.0, 1.0)
