"""The argument of the callbacks of `train_private`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from torch import nn


@dataclass(frozen=True)
class Evaluation:
    """The state of a training after a step. All of it is released: the ledger covers it.

    Attributes:
        step: the number of the step, from 1.
        steps: the planned number of steps.
        score: what `evaluate` returned; None without `evaluate`.
        threshold: C of the next step; NaN if the method has none.
        learning_rate: rho of the next step, before the schedule.
        make_model: returns a copy of the model with the parameters that are evaluated.
    """

    step: int
    steps: int
    score: float | None
    threshold: float
    learning_rate: float
    make_model: Callable[[], nn.Module] = field(repr=False)


# Called after each evaluation; True ends the training, as Ctrl-C does.
Callback: TypeAlias = Callable[[Evaluation], bool | None]
