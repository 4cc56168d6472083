"""The contract of a method: which sums it asks for, and what it does with the answers.

A method sees sanitized values only: never an example, a gradient of one, or a batch size. All its
values have a leading run axis R, one entry per run that trains beside the others.

To add a method, put one file with a subclass of `Method` into this folder and name it in a
configuration; nothing else has to know (docs/internals/add_a_method.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # the study reads declarations from here without torch's start-up time
    from torch import Tensor

    from oso_dp.privacy.queries import Answers, Query


# What a grid may search, and where a run starts.
AXES = ("learning_rate", "threshold", "quantile")


@dataclass
class State:
    """Everything that changes while R runs train. P is the number of the model's parameters."""

    parameters: Tensor  # theta, [R, P]
    learning_rate: Tensor  # rho, [R]
    threshold: Tensor  # C, [R]; NaN for methods that do not clip
    quantile: Tensor  # gamma, [R]; NaN for methods that have none
    noise_multiplier: float  # nu, of one step, all its queries together
    batch_size: int  # expected size of a Poisson batch
    step: int = 0  # t, counted from 1 while a step is taken
    layers: dict[str, int] = field(default_factory=dict)  # parameters by layer, in theta's order
    buffers: dict[str, Tensor] = field(default_factory=dict)  # the method's own, each [R, ...]
    average: Tensor | None = None  # of the parameters over the steps, [R, P], if it is taken

    def select(self, runs: Tensor) -> None:
        """Drop all runs but these (int64 indices): the others have ended."""
        self.parameters = self.parameters[runs]
        self.learning_rate = self.learning_rate[runs]
        self.threshold = self.threshold[runs]
        self.quantile = self.quantile[runs]
        self.buffers = {name: value[runs] for name, value in self.buffers.items()}
        if self.average is not None:
            self.average = self.average[runs]

    @property
    def eval_parameters(self) -> Tensor:
        """The parameters that stand for each run, [R, P]."""
        return self.parameters if self.average is None else self.average


@dataclass(frozen=True)
class MethodOptions:
    """A method's constants, each a `setting`; a configuration may set each by its name."""


def option(default: Any, **limits: float) -> Any:
    """One constant: its default, and its limits (gt, ge, lt, le).

    They are declared here and held against a configuration's values in `oso_dp.study.config`, so
    that training needs no library for that.
    """
    return field(default=default, metadata=limits)


class Method(ABC):
    """One way to train. Subclasses set the class variables and write `queries` and `update`."""

    name: ClassVar[str]
    title: ClassVar[str]
    search: ClassVar[tuple[str, ...]]  # the grid's axes: learning_rate, threshold, quantile
    is_private: ClassVar[bool] = True
    # Whether `update` moves theta with the rate that it has just set, not with that of before.
    updates_rate_first: ClassVar[bool] = False
    # Whether a schedule may shorten its steps: not where its rule counts on those that it takes.
    supports_schedule: ClassVar[bool] = True
    Options: ClassVar[type[MethodOptions]] = MethodOptions

    def __init__(self, settings: Any, momentum: float) -> None:
        self.options = settings
        self.momentum = momentum

    @property
    def uses_momentum(self) -> bool:
        """Whether the study's momentum applies; some methods have one of their own."""
        return True

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        """All starting values of a run, from the grid's candidate (axis name to value)."""
        return candidate

    def split_noise(self, noise_multiplier: float, batch_size: int) -> tuple[float, float | None]:
        """From nu of a step, the noise multipliers of the gradient and of the second query."""
        return noise_multiplier, None

    @abstractmethod
    def queries(self, state: State) -> tuple[Query, ...]:
        """The sums that a step asks for."""

    @abstractmethod
    def update(self, state: State, answers: Answers) -> None:
        """Take one step. `answers[ClippedGradient]` is the sanitized mean for that query, [R, P].

        [R] for a count; `answers[ClippedGradient, name]` of a query about a group of layers.
        """

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:  # noqa: B027
        """The part of `update` that moves all but theta: C, rho, and what the method remembers.

        By itself where somebody else's optimizer moves theta (`oso_dp.opacus`). By default nothing.
        """

    def fraction_clipped(self, state: State) -> Tensor | None:
        """The sanitized share of clipped examples in the last batch, [R], if the method asks."""
        return None


def gradient_step(state: State, gradient: Tensor, momentum: float) -> None:
    """theta <- theta - rho v with v <- momentum v + gradient (heavy ball, as torch.optim.SGD)."""
    if momentum > 0:
        if (velocity := state.buffers.get("velocity")) is not None:
            gradient = momentum * velocity + gradient
        state.buffers["velocity"] = gradient
    state.parameters -= state.learning_rate[:, None] * gradient


def adam_step(
    state: State, gradient: Tensor, beta1: float, beta2: float, stabiliser: float
) -> None:
    """theta <- theta - rho m / (sqrt(v) + stabiliser), as torch.optim.Adam.

    m and v are the averages of the gradients and of their squares, each over 1 - beta^t.
    """
    memory, zeros = state.buffers, gradient.new_zeros(gradient.shape)
    memory["mean"] = beta1 * memory.get("mean", zeros) + (1 - beta1) * gradient
    memory["square"] = beta2 * memory.get("square", zeros) + (1 - beta2) * gradient.square()
    mean = memory["mean"] / (1 - beta1**state.step)
    root = (memory["square"] / (1 - beta2**state.step)).sqrt()
    state.parameters -= state.learning_rate[:, None] * mean / (root + stabiliser)
