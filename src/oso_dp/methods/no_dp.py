"""NoDP: the baseline without privacy. Its optimizer is a setting, Adam by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oso_dp.methods.base import Method, Settings, State, descend, setting
from oso_dp.privacy.queries import PlainGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class NoDPSettings(Settings):
    optimizer: Literal["adam", "sgd"] = "adam"
    beta1: float = setting(0.9, ge=0, lt=1)
    beta2: float = setting(0.999, ge=0, lt=1)
    stabiliser: float = setting(1e-8, gt=0)


class NoDP(Method):
    name = "no_dp"
    title = "NoDP"
    search = ("learning_rate",)
    private = False
    Settings = NoDPSettings

    @property
    def uses_momentum(self) -> bool:
        return bool(self.settings.optimizer == "sgd")

    def queries(self, state: State) -> tuple[PlainGradient]:
        return (PlainGradient(),)

    def update(self, state: State, answers: Answers) -> None:
        gradient = answers[PlainGradient]
        if self.settings.optimizer == "sgd":
            descend(state, gradient, self.momentum)
            return
        beta1, beta2, memory = self.settings.beta1, self.settings.beta2, state.memory
        zeros = gradient.new_zeros(gradient.shape)
        memory["mean"] = beta1 * memory.get("mean", zeros) + (1 - beta1) * gradient
        memory["square"] = beta2 * memory.get("square", zeros) + (1 - beta2) * gradient.square()
        mean = memory["mean"] / (1 - beta1**state.step)
        root = (memory["square"] / (1 - beta2**state.step)).sqrt()
        state.parameters -= state.learning_rate[:, None] * mean / (root + self.settings.stabiliser)
