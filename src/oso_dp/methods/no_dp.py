"""NoDP: the baseline without privacy. Its optimizer is a setting, Adam by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oso_dp.methods.base import Method, Settings, State, adapt, descend, setting
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
        settings = self.settings
        if settings.optimizer == "sgd":
            descend(state, gradient, self.momentum)
        else:
            adapt(state, gradient, settings.beta1, settings.beta2, settings.stabiliser)
