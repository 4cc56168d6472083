"""Learning rate schedules and weight averaging (EMA), for any method.

They use sanitized values only, so they have no privacy cost.
"""

from typing import Final

from torch import Tensor

CONSTANT, LINEAR = "constant", "linear"
SCHEDULES: Final = (CONSTANT, LINEAR)


def rate_factor(schedule: str | None, step: int, steps: int) -> float:
    """Factor of the learning rate at a step, counted from 1.

    `linear`: decays linearly from 1 to 0, which it would reach after the last step. None: constant.
    """
    return 1.0 if schedule is None else 1 - (step - 1) / steps


def update_average(average: Tensor, parameters: Tensor, decay: float, step: int) -> Tensor:
    """The exponential moving average of the parameters (De et al. 2022), [R, P].

    The decay is at most (1 + t) / (10 + t), so that initial parameters have little weight.
    """
    return average.lerp(parameters, 1 - min(decay, (1 + step) / (10 + step)))
