"""The interface of a DP optimizer ("method"): the queries of a step, and the update by the answers.

A method sees sanitized values only, never an example, a per-sample gradient or a realised batch
size. All values have a leading axis R, one entry per parallel run.

To add a method, put one file with a subclass of `Method` into this folder and use its name in a
configuration; no registration is needed (docs/internals/add_a_method.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from oso_dp.errors import OsoError

if TYPE_CHECKING:  # importing torch is slow, and planning a study does not need it
    from torch import Tensor

    from oso_dp.privacy.queries import Answers, Query


# The hyperparameters that a grid may search, each with an initial value per run.
AXES = ("learning_rate", "threshold", "quantile")


@dataclass
class State:
    """The training state of R parallel runs of a model with P parameters.

    Attributes:
        parameters: theta, [R, P].
        learning_rate: rho, [R].
        threshold: C, [R]; NaN for methods that do not clip.
        quantile: gamma, [R]; NaN for methods without one.
        noise_multiplier: nu of one step, all its queries together.
        batch_size: B, the expected size of a Poisson batch.
        step: t; 1 during the first step.
        layers: parameter counts by layer name, in the order of theta.
        buffers: tensors of the method, such as momentum, each [R, ...].
        average: exponential moving average of the parameters, [R, P], if it is used.
    """

    parameters: Tensor
    learning_rate: Tensor
    threshold: Tensor
    quantile: Tensor
    noise_multiplier: float
    batch_size: int
    step: int = 0
    layers: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    average: Tensor | None = None

    def select(self, runs: Tensor) -> None:
        """Keep only the runs with these indices, int64 [R']; the others have ended."""
        self.parameters = self.parameters[runs]
        self.learning_rate = self.learning_rate[runs]
        self.threshold = self.threshold[runs]
        self.quantile = self.quantile[runs]
        self.buffers = {name: value[runs] for name, value in self.buffers.items()}
        if self.average is not None:
            self.average = self.average[runs]

    @property
    def eval_parameters(self) -> Tensor:
        """The parameters to evaluate, [R, P]: the average if there is one."""
        return self.parameters if self.average is None else self.average


@dataclass(frozen=True)
class MethodOptions:
    """Base class of a method's constants. Each field is an `option`; a configuration may set it."""


def option(default: Any, **limits: float) -> Any:
    """Declare a constant of a method.

    Args:
        default: the value unless a configuration sets one.
        **limits: gt, ge, lt or le, checked by `oso_dp.study.config` and `option_checks`.

    Example:
        >>> @dataclass(frozen=True)
        ... class MyOptions(MethodOptions):
        ...     beta: float = option(0.9, ge=0, lt=1)
    """
    return field(default=default, metadata=limits)


class Method(ABC):
    """A DP optimizer. Subclasses set the class variables and define `queries` and `update`.

    Attributes:
        name: in configurations and run identities; unique.
        title: in tables and figures.
        search: the axes of its grid: any of learning_rate, threshold, quantile.
        is_private: False for a baseline without privacy.
        updates_rate_first: whether `update` moves theta with the learning rate that it has just
            set, not with the earlier one.
        supports_schedule: whether a learning rate schedule may scale its steps.
        Options: the class of its constants.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    search: ClassVar[tuple[str, ...]]
    is_private: ClassVar[bool] = True
    updates_rate_first: ClassVar[bool] = False
    supports_schedule: ClassVar[bool] = True
    Options: ClassVar[type[MethodOptions]] = MethodOptions

    def __init__(self, options: Any, momentum: float) -> None:
        """Create the method.

        Args:
            options: an instance of `Options`.
            momentum: in [0, 1), for methods that use it.
        """
        self.options = options
        self.momentum = momentum

    @property
    def uses_momentum(self) -> bool:
        """Whether `momentum` has an effect; False for methods with a momentum of their own."""
        return True

    def initial_values(self, candidate: dict[str, float]) -> dict[str, float]:
        """The initial values of a run.

        Args:
            candidate: a grid point, values by axis.

        Returns:
            `candidate`, and initial values that the method sets itself, by axis.
        """
        return candidate

    def split_noise(self, noise_multiplier: float, batch_size: int) -> tuple[float, float | None]:
        """Split the noise of a step among its queries.

        Args:
            noise_multiplier: nu of the step.
            batch_size: the expected batch size.

        Returns:
            The noise multipliers of the gradient and of the second query (None without one).

        Raises:
            OsoError: if the second query leaves no budget for the gradient.
        """
        return noise_multiplier, None

    @abstractmethod
    def queries(self, state: State) -> tuple[Query, ...]:
        """The noisy sums that a step needs; together they have the step's noise multiplier."""

    @abstractmethod
    def update(self, state: State, answers: Answers) -> None:
        """Take one step in place.

        Args:
            state: of R runs.
            answers: the sanitized means by query class, such as `answers[ClippedGradient]`, [R, P]
                ([R] for a count); by (class, group name) for a query of a layer group.
        """

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:  # noqa: B027
        """The part of `update` that changes C, rho and the method's buffers, but not theta.

        Used alone where another optimizer moves theta (`oso_dp.opacus`). Default: no change.
        """

    def fraction_clipped(self, state: State) -> Tensor | None:
        """The sanitized fraction of clipped examples in the last batch, [R], if it was queried."""
        return None


def checked_queries(method: Method, state: State) -> tuple[Query, ...]:
    """`method.queries(state)`; OsoError if it changes `state`."""
    held = [*vars(state).values(), *state.buffers.values()]  # alive, so that no id is used again
    before = _fingerprints(state)
    queries = method.queries(state)
    after = _fingerprints(state)
    del held
    for name in [*before, *after]:
        if before.get(name) != after.get(name):
            raise OsoError(
                f"method {method.name!r}: `queries` changes state.{name}; must be changed in "
                "`update` only"
            )
    return queries


def _fingerprints(state: State) -> dict[str, tuple[Any, int]]:
    """A value by name that changes when the state's does; a tensor's with each write."""
    values = {**vars(state), **{f"buffers[{name!r}]": of for name, of in state.buffers.items()}}
    del values["buffers"], values["layers"]
    return {
        name: (id(value), value._version) if hasattr(value, "_version") else (value, 0)
        for name, value in values.items()
    }


def gradient_step(state: State, gradient: Tensor, momentum: float) -> None:
    """theta <- theta - rho v with v <- momentum v + gradient (heavy ball, as torch.optim.SGD).

    Args:
        state: changed in place; v is `state.buffers["velocity"]`.
        gradient: [R, P].
        momentum: in [0, 1).
    """
    if momentum > 0:
        if (velocity := state.buffers.get("velocity")) is not None:
            gradient = momentum * velocity + gradient
        state.buffers["velocity"] = gradient
    state.parameters -= state.learning_rate[:, None] * gradient


def adam_step(
    state: State, gradient: Tensor, beta1: float, beta2: float, stabiliser: float
) -> None:
    """theta <- theta - rho m / (sqrt(v) + stabiliser), as torch.optim.Adam.

    m and v are the bias-corrected averages of the gradients and of their squares.

    Args:
        state: changed in place; the averages are `state.buffers["mean"]` and `["square"]`.
        gradient: [R, P].
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        stabiliser: epsilon of Adam, > 0.
    """
    memory, zeros = state.buffers, gradient.new_zeros(gradient.shape)
    memory["mean"] = beta1 * memory.get("mean", zeros) + (1 - beta1) * gradient
    memory["square"] = beta2 * memory.get("square", zeros) + (1 - beta2) * gradient.square()
    mean = memory["mean"] / (1 - beta1**state.step)
    root = (memory["square"] / (1 - beta2**state.step)).sqrt()
    state.parameters -= state.learning_rate[:, None] * mean / (root + stabiliser)
