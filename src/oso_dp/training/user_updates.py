"""The updates of a batch of users, each by local training on their own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.local_updates import LocalUpdates, train_locally
from oso_dp.gradients.structured import Structure
from oso_dp.privacy.users import Slice

if TYPE_CHECKING:
    from oso_dp.training.task import Examples, TrainConfig, TrainingProblem

_MAX_NUMBERS = 2**25  # of the updates that are held at once
_GROUP = 16  # users that train together
# The rows of a user in random order: of the number of the user, the epoch, the rows.
Shuffle = Callable[[int, int, npt.NDArray[np.int64]], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class _Fetched:
    inputs: Structure
    targets: Tensor
    weights: Tensor
    absent: Tensor | None


def make_updates(
    problem: TrainingProblem,
    flat: Tensor,
    users: Tensor,
    shuffle: Shuffle,
    is_public: bool,
) -> LocalUpdates:
    """The updates of users [B] from the parameters flat [P].

    Padding repeats a user, who trains once. is_public: whether the data need no protection. If they
    do, one user trains at a time: the last bit of a product depends on a user's place among others,
    and local steps, or a ReLU near zero, may amplify it to a difference of the order of C.
    """
    assert problem.users is not None
    distinct, places = users.unique(return_inverse=True)
    updates = flat.new_zeros(len(distinct), len(flat))
    train_together = is_public and problem.engine.takes_several_runs
    group_size = min(_GROUP, users_at_once(len(flat))) if train_together else 1
    for group in problem.users.groups(distinct, group_size):
        steps = problem.users.local_steps(
            group.tolist(), group_size, problem.local, shuffle, flat.device
        )
        trained = train_locally(
            problem.engine,
            flat,
            group_size,
            (_fetch(problem.examples, step) for step in steps),
            problem.local.learning_rate,
        )
        updates[torch.searchsorted(distinct, group)] = trained[: len(group)]
    return LocalUpdates(problem.engine, updates[places])


def _fetch(examples: Examples, step: Iterable[Slice]) -> Iterator[_Fetched]:
    for part in step:
        inputs, targets, absent = examples.batch(part.rows)
        yield _Fetched(inputs, targets, part.weights, absent)


def users_at_once(parameters: int) -> int:
    """The default number of users whose updates are held at once, so that they fit into memory."""
    return max(1, _MAX_NUMBERS // parameters)


def check_user_level(config: TrainConfig, problem: TrainingProblem) -> None:
    """OsoError for what a training of users does not support."""
    if config.augment is not None:
        raise OsoError("augment: not supported with users, whose rows are not augmented")
    if config.group.count > 1:
        raise OsoError("users: not supported in a torch.distributed group; train in one process")
    if problem.trains_as_examples:
        return
    if config.product_precision.low:
        raise OsoError(
            f"precision: {config.precision!r}; must be float32 with users, unless they train as "
            "examples (FedSGD with rows_per_user=1)"
        )
    if problem.engine.traits.draws_random:
        raise OsoError(
            "users: the model draws random numbers (dropout), which users' training does not "
            "support unless they train as examples (FedSGD with rows_per_user=1); remove these "
            "layers, or set their probability to 0"
        )
