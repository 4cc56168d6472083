"""Online's two adaptation signs, step by step (Galli et al. 2024, equations 20 and 21).

At each step t, the method uses the signs of g~_t . q~_{t-1} and of g~_t . g~_{t-1}, which are
sanitized. They are compared with the products without noise, for the same batches and parameters.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from oso_dp.data.arrays import Arrays
from oso_dp.diagnostics.cosine import cosine_between
from oso_dp.diagnostics.inputs import take_steps
from oso_dp.errors import OsoError
from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.methods import State
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, ClippingQuery
from oso_dp.study.cohort import Run
from oso_dp.training.loop import study_training
from oso_dp.training.task import StudyTask

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


@dataclass(frozen=True)
class StepSigns:
    """One step t >= 2. Products are given as cosines, which have the same signs and no unit.

    A `_z` is the product without noise divided by the standard deviation of the noise's
    contribution: the sign is + with probability Phi(z) if the noise of the previous step is
    independent of g_t.
    """

    step: int  # t
    threshold: float  # C_t
    learning_rate: float  # rho_t
    direction: float  # of g~_t and q~_{t-1}: its sign moves C
    gradient: float  # of g~_t and g~_{t-1}: its sign moves rho
    true_direction: float  # without noise; this and all below are not private
    true_gradient: float
    direction_z: float
    gradient_z: float
    true_two_apart: float  # of g_t and g_{t-2}, without noise; NaN at t = 2
    clipped: float  # fraction of the batch's gradients with norm above C_t


@dataclass(frozen=True)
class _Release:
    """A step's sums over the batch, sanitized and true; each vector is float64 [P]."""

    threshold: float
    learning_rate: float
    noisy: tuple[Tensor, Tensor]  # B g~ and B q~
    true: tuple[Tensor, Tensor]  # the same without noise
    noise: tuple[float, float]  # the noise's standard deviation in each coordinate
    clipped: float


def measure_signs(task: StudyTask, run: Run, arrays: Arrays, steps: int) -> Iterator[StepSigns]:
    """Train a run for `steps` steps; yield each step from the second on.

    Raises OsoError for a method whose queries differ from Online's, and if the run diverges.
    """
    releases: list[_Release] = []  # of this step and the previous two

    def watch(state: State, answers: "Answers") -> None:
        del releases[:-2]
        releases.append(_release(task, state, answers, engine.last))

    # With width 1, the engine's last gradients are those of this run.
    training = study_training(replace(task, width=1), [run], arrays, watch)
    queries = tuple(type(query) for query in task.method.queries(training.state))
    if queries != (ClippedGradient, ClippedDirection):
        raise OsoError(f"method: {task.method.name}; must be online, which has adaptation signs")
    training.engine = engine = RecordingEngine(training.engine)
    for step in take_steps(training, steps):
        if step > 1:
            yield _compare(step, releases)


class RecordingEngine(GradientEngine):
    """A gradient engine that records the last batch's gradients."""

    def __init__(self, engine: GradientEngine) -> None:
        super().__init__(engine.model, engine.loss, engine.precision, engine.is_whole_model)
        self.traits = engine.traits
        self.last: RecordingGradients

    def __call__(self, *args: Any, **kwargs: Any) -> BatchGradients:
        self.last = RecordingGradients(self, *args, **kwargs)
        return self.last


class RecordingGradients(BatchGradients):
    """Records `weights` [R, J, B] and `sums` [R, J, P] of the last `weighted_sums`."""

    weights: Tensor
    sums: Tensor

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        self.weights, self.sums = weights, super().weighted_sums(weights, layers)
        return self.sums


def _release(
    task: StudyTask, state: State, answers: "Answers", gradients: RecordingGradients
) -> _Release:
    batch_size = task.batch_size
    one, queries = slice(0, 1), task.method.queries(state)
    # Both queries have two components: the gradients with norm up to C, and unit vectors of others.
    short, units = gradients.sums.double().unbind(dim=1)
    gradient, direction = (
        query.combined(short, units, one)[0]
        for query in queries
        if isinstance(query, ClippingQuery)
    )
    unclipped, clipped = (gradients.weights[0] > 0).sum(dim=1).tolist()
    noise = [query.noise_multiplier * float(query.sensitivity(one)) for query in queries]
    return _Release(
        float(state.threshold[0]),
        float(state.learning_rate[0]),
        (
            answers[ClippedGradient][0].double() * batch_size,
            answers[ClippedDirection][0].double() * batch_size,
        ),
        (gradient, direction),
        (noise[0], noise[1]),
        clipped / (unclipped + clipped) if unclipped + clipped else math.nan,
    )


def _compare(step: int, releases: Sequence[_Release]) -> StepSigns:
    now, before = releases[-1], releases[-2]
    gradient = now.noisy[0]
    true = now.true[0]
    return StepSigns(
        step=step,
        threshold=now.threshold,
        learning_rate=now.learning_rate,
        direction=cosine_between(gradient, before.noisy[1]),
        gradient=cosine_between(gradient, before.noisy[0]),
        true_direction=cosine_between(true, before.true[1]),
        true_gradient=cosine_between(true, before.true[0]),
        direction_z=_in_noise(now, before, 1),
        gradient_z=_in_noise(now, before, 0),
        true_two_apart=cosine_between(true, releases[-3].true[0]) if step > 2 else math.nan,
        clipped=now.clipped,
    )


def _in_noise(now: _Release, before: _Release, index: int) -> float:
    """True g_t . q_{t-1} (index 1) or g_t . g_{t-1} (0), divided by the noise's deviation."""
    a, b = now.true[0], before.true[index]
    std_a, std_b = now.noise[0], before.noise[index]
    variance = std_b**2 * (a @ a) + std_a**2 * (b @ b) + len(a) * (std_a * std_b) ** 2
    return float(a @ b / variance.sqrt())
