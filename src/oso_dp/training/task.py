"""Configuration of a training (`TrainConfig`, `StudyTask`) and what it trains (`TrainingProblem`).

`oso_dp.training.study_problem.make_problem` builds the problem of a study.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from oso_dp.gradients import GradientEngine, Precision, find_precision
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, map_tensors
from oso_dp.methods import Method
from oso_dp.models import build_model
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.promise import EXAMPLE, USER, Unit
from oso_dp.privacy.rng_sources import init_generator
from oso_dp.privacy.users import Users
from oso_dp.training.augmentation import Augment
from oso_dp.training.evaluate import SplitScore
from oso_dp.training.schedule_and_averaging import Schedule
from oso_dp.training.torch_optimizer import TorchOptimizer


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training options that all runs of one call share."""

    method: Method
    noise_multiplier: float  # nu of one step; 0 for methods without privacy
    batch_size: int  # expected
    steps: int
    evaluate_every: int
    device: str = "cpu"
    # Of the learning rate: see oso_dp.training.schedule_and_averaging.
    schedule: str | Schedule | None = None
    warmup: float = 0.0
    averaging: float | None = None  # decay of the parameters' EMA, which is then evaluated
    randomness: str = "seeded"  # of batches and noise: see oso_dp.privacy.rng_sources
    delta: float | None = None  # that system noise of this run has to suffice for
    precision: str = "float32"  # of products: see oso_dp.gradients.precision
    width: int | None = None  # runs per forward pass; None: chosen by device
    microbatch_size: int | None = None  # examples of a run per forward pass; None: the batch
    augment: Augment | None = None  # of an example: see oso_dp.training.augmentation
    views: int = 1  # K, augmented views of each example
    group: ProcessGroup = field(default_factory=ProcessGroup)  # that train together

    @property
    def product_precision(self) -> Precision:
        return find_precision(self.precision, torch.device(self.device))


@dataclass(frozen=True, kw_only=True)
class StudyTask(TrainConfig):
    """A training configuration with a study's model and loss, by name.

    `network`: builds a user-defined model instead of the named one.
    """

    model: str
    metric: str
    final_activation: bool = False
    loss: str = "mean"  # over the pixels of an image: mean or sum
    network: Callable[[], nn.Module] | None = None
    local: LocalTraining | None = None  # what a user computes; None: an example is the unit


class Examples(Protocol):
    """The training examples: private."""

    @property
    def prefetch(self) -> Callable[[Tensor], None] | None:
        """Starts to fetch the next batch, given its indices; None if examples are in memory."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> tuple[Structure, Tensor, Tensor | None]:
        """The inputs and targets, each [R, B, ...], for indices int64 [R, B].

        The third value marks absent examples, bool [R, B]; None if all are present.
        """

    def empty(self) -> tuple[Structure, Tensor]:
        """Inputs and targets of 0 examples, [0, ...]: their shapes and types, which are public."""


@dataclass(frozen=True)
class TensorExamples:
    """Examples as tensors: inputs [n, ...] and targets [n, ...].

    types: inputs and targets of 0 examples. Each batch is converted to their dtypes and device.
        Default: those of the tensors.
    """

    inputs: Structure
    targets: Tensor
    types: tuple[Structure, Tensor] | None = None

    @property
    def prefetch(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor) -> tuple[Structure, Tensor, None]:
        if self.types is None:
            inputs = map_tensors(lambda one: _rows(one, indices), self.inputs)
            return inputs, _rows(self.targets, indices), None
        inputs, targets = tree_map(
            lambda one, like: _converted_rows(one, indices, like),
            (self.inputs, self.targets),
            self.types,
        )
        return inputs, targets, None

    def empty(self) -> tuple[Structure, Tensor]:
        if self.types is not None:
            return self.types
        return map_tensors(lambda one: one[:0], self.inputs), self.targets[:0]


_CHUNK_SIZE = 2**20  # numbers


def split_rows(values: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Rows [n, ...] in chunks of this dtype, so that reading all of them needs little memory.

    A chunk may be overwritten by the next.
    """
    rows = max(1, _CHUNK_SIZE // max(1, values[:1].numel()))
    if dtype == values.dtype:
        yield from values.split(rows)
        return
    # One buffer: glibc does not reuse the memory of chunks that were freed between small results.
    buffer = torch.empty_like(values[:rows], dtype=dtype)
    for chunk in values.split(rows):
        yield buffer[: len(chunk)].copy_(chunk)


def _no_scores(flat: Tensor) -> Sequence[SplitScore]:
    return ()


@dataclass
class TrainingProblem:
    """What is trained.

    Attributes:
        engine: The gradient engine.
        examples: The training examples.
        initial_parameters: [R, P].
        metric: Name of the metric of `scores`.
        scores: Evaluates parameters [P].
        classes: Number of classes of integer targets, as far as known.
        optimizer: Moves the parameters of a single run, in place of the method.
        users: The rows of each user, if a user is the unit of privacy.
        local: What each user computes in a step.
    """

    engine: GradientEngine
    examples: Examples
    initial_parameters: Tensor
    metric: str = ""
    scores: Callable[[Tensor], Sequence[SplitScore]] = field(default=_no_scores)
    classes: int = 2
    optimizer: TorchOptimizer | None = None
    users: Users | None = None
    local: LocalTraining = field(default_factory=LocalTraining)

    @property
    def unit(self) -> Unit:
        """The unit of privacy."""
        return EXAMPLE if self.users is None else USER

    @property
    def records(self) -> int:
        """The number of examples, or of users if a user is the unit."""
        return len(self.examples) if self.users is None else len(self.users)

    @property
    def trains_as_examples(self) -> bool:
        """Whether each record's gradient is that of one example.

        So is that of users by FedSGD if one row of each is used. Public: numbers of rows do not
        decide it.
        """
        if self.users is None:
            return True
        return self.local == LocalTraining(rows_per_user=1)


def initial_parameters(task: StudyTask, seed: int) -> Tensor:
    """Initial parameters [P], which depend on the model and the seed only.

    All methods start from the same parameters per seed, so that they are comparable.
    """
    return torch.nn.utils.parameters_to_vector(make_model(task, seed).parameters()).detach()


def make_model(task: StudyTask, seed: int) -> nn.Module:
    """The task's model with this seed's initial parameters."""
    number = int(init_generator(f"seed {seed}", f"weights of {task.model}", 0).integers(2**32))
    with seeded(number):
        if task.network is not None:
            return task.network()
        return build_model(task.model, task.final_activation)


def examples_on_device(
    inputs: np.ndarray, targets: np.ndarray, metric: str, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Inputs and targets on the device; an autoencoder's targets are its inputs."""
    images = torch.from_numpy(inputs).to(device)
    return images, images if metric == "mse" else torch.from_numpy(targets).to(device)


def _rows(values: Tensor, indices: Tensor) -> Tensor:
    """values[indices] in half the time: [n, ...] and [R, B] to [R, B, ...]."""
    return values.index_select(0, indices.flatten()).unflatten(0, indices.shape)


# torch selects no rows of the first; they have the bits of the second.
_SAME_BITS = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def _converted_rows(values: Tensor, indices: Tensor, like: Tensor) -> Tensor:
    """values[indices] with the dtype and device of `like`."""
    selectable = values.view(_SAME_BITS.get(values.dtype, values.dtype))
    rows = _rows(selectable, indices.to(values.device)).view(values.dtype)
    return rows.to(like.device).to(like.dtype)
