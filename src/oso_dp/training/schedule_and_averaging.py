"""What is laid over any method's steps, at no privacy cost: it reads sanitized values only."""

from typing import Final

from torch import Tensor

CONSTANT, LINEAR = "constant", "linear"
SCHEDULES: Final = (CONSTANT, LINEAR)


def rate_factor(schedule: str | None, step: int, steps: int) -> float:
    """What the learning rate is multiplied by at a step, counted from 1.

    linear: it falls from 1 in equal parts, and would be 0 after the last step. None: constant.
    """
    return 1.0 if schedule is None else 1 - (step - 1) / steps


def update_average(average: Tensor, parameters: Tensor, decay: float, step: int) -> Tensor:
    """The exponential average of the iterates after this step (De et al. 2022), each [R, P].

    Early on the past counts less, (1 + t) / (10 + t), so that the first weights are forgotten.
    """
    return average.lerp(parameters, 1 - min(decay, (1 + step) / (10 + step)))
