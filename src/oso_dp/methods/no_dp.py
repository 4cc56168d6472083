"""NoDP: the baseline without privacy. Its optimizer is a setting, Adam by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from oso_dp.methods.base import Method, MethodOptions, State, adam_step, gradient_step, option
from oso_dp.privacy.queries import PlainGradient

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class NoDPOptions(MethodOptions):
    optimizer: Literal["adam", "sgd"] = "adam"
    beta1: float = option(0.9, ge=0, lt=1)
    beta2: float = option(0.999, ge=0, lt=1)
    stabiliser: float = option(1e-8, gt=0)


class NoDP(Method):
    name = "no_dp"
    title = "NoDP"
    search = ("learning_rate",)
    is_private = False
    Options = NoDPOptions

    @property
    def uses_momentum(self) -> bool:
        return bool(self.options.optimizer == "sgd")

    def queries(self, state: State) -> tuple[PlainGradient]:
        return (PlainGradient(),)

    def update(self, state: State, answers: Answers) -> None:
        gradient = answers[PlainGradient]
        settings = self.options
        if settings.optimizer == "sgd":
            gradient_step(state, gradient, self.momentum)
        else:
            adam_step(state, gradient, settings.beta1, settings.beta2, settings.stabiliser)
