"""Automatic clipping, which leaves no threshold to tune: AUTO-S (Bu et al. 2023) and PSAC.

AUTO-S normalises every gradient. C would scale a step and its noise alike, as rho does; so it is 1,
and the grid is over rho alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from oso_dp.methods.base import Method, MethodOptions, State, gradient_step, option
from oso_dp.privacy.queries import AdaptiveGradient, AutomaticGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class AutoSOptions(MethodOptions):
    stabiliser: float = option(0.01, ge=1e-6, le=1e6)  # gamma


class AutoS(Method):
    name = "auto_s"
    title = "AUTO-S"
    search = ("learning_rate",)
    Options = AutoSOptions
    query: ClassVar[type[AutomaticGradient]] = AutomaticGradient

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        return {**candidate, "threshold": 1.0}

    def queries(self, state: State) -> tuple[AutomaticGradient]:
        stabiliser = self.options.stabiliser
        return (self.query(state.noise_multiplier, state.threshold, stabiliser=stabiliser),)

    def update(self, state: State, answers: Answers) -> None:
        gradient_step(state, answers[self.query], self.momentum)


@dataclass(frozen=True)
class PSACOptions(AutoSOptions):
    stabiliser: float = option(0.1, ge=1e-6, le=1e6)  # r


class PSAC(AutoS):
    """Per-sample adaptive clipping: AUTO-S with another weight (Xia et al. 2023)."""

    name = "psac"
    title = "PSAC"
    Options = PSACOptions
    query = AdaptiveGradient
