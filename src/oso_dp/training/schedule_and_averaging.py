"""Learning rate schedules and weight averaging (EMA), for any method.

They use sanitized values only, so they have no privacy cost.
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from torch import Tensor

from oso_dp.errors import failing_as
from oso_dp.value_checks import as_plain, check_number

Schedule: TypeAlias = Callable[[int, int], float]  # step, from 1, and steps -> factor
CONSTANT: Final = "constant"
_NAMED: Final[dict[str, Schedule]] = {
    CONSTANT: lambda step, steps: 1.0,
    "linear": lambda step, steps: 1 - (step - 1) / steps,
    "cosine": lambda step, steps: (1 + math.cos(math.pi * (step - 1) / steps)) / 2,
}
SCHEDULES: Final = tuple(_NAMED)


def rate_factor(
    schedule: str | Schedule | None, step: int, steps: int, warmup: float = 0.0
) -> float:
    """Factor of the learning rate at a step, counted from 1.

    `linear` and `cosine` decay from 1 to 0, which they would reach after the last step. None:
    constant. warmup: the fraction of the steps over which the factor also grows linearly to 1.
    """
    factor = _NAMED[schedule or CONSTANT] if not callable(schedule) else schedule
    return factor(step, steps) * min(1.0, step / max(1.0, warmup * steps))


def rehearse_schedule(schedule: Schedule, steps: int) -> None:
    """OsoError if the function fails within the steps, which a training learns too late."""
    for step in range(1, steps + 1):
        with failing_as(f"schedule: fails at step {step} of {steps}"):
            factor = as_plain(schedule(step, steps))
        check_number(f"schedule at step {step} of {steps}", factor, ge=0)


def update_average(average: Tensor, parameters: Tensor, decay: float, step: int) -> Tensor:
    """The exponential moving average of the parameters (De et al. 2022), [R, P].

    The decay is at most (1 + t) / (10 + t), so that initial parameters have little weight.
    """
    return average.lerp(parameters, 1 - min(decay, (1 + step) / (10 + step)))
