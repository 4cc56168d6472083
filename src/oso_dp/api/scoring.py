"""Scoring of the models of a search: on public data, or on private data with a noisy mean."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor, nn

from oso_dp.api.arguments import call_for_number
from oso_dp.api.datasets import widen
from oso_dp.api.trainer import TrainingResult
from oso_dp.errors import OsoError
from oso_dp.gradients import check_forward_is_pure
from oso_dp.gradients.precision import use_float32
from oso_dp.gradients.random_numbers import seeded
from oso_dp.gradients.structured import Structure, call_model, map_tensors, select, tensors_of
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noisy_mean import NoisyMean
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.training.task import Examples, split_rows

_log = logging.getLogger(__name__)

PerExampleMetric = Callable[[Tensor, Tensor], float | Tensor]
_DEFAULT_MICROBATCH_SIZE = 256  # examples


class Scorer(Protocol):
    """Assigns a score to a trained model; higher is better."""

    description: str  # of the data, for the statement
    examples: int  # number of private validation examples; 0 if the data are public
    std: float  # of the noise in a score
    ledger: Ledger | None  # of all scores so far; None if the data are public

    def __call__(self, ended: TrainingResult) -> float: ...

    def ledger_of_one(self) -> Ledger | None:
        """What the score of one model costs."""


class PublicScorer:
    """Scores by the user's function, on data that need no protection."""

    description, examples, std = "data that need no protection", 0, 0.0
    ledger: Ledger | None = None

    def __init__(self, score: Callable[[nn.Module], float]) -> None:
        if not callable(score):
            raise OsoError(f"score: {type(score).__name__}; must be callable")
        self.score = score

    def __call__(self, ended: TrainingResult) -> float:
        return call_for_number("score", self.score(copy.deepcopy(ended.model).eval()))

    def ledger_of_one(self) -> Ledger | None:
        return None


class NoisyScorer:
    """Scores by the noisy mean of a per-example metric over private validation examples."""

    def __init__(
        self,
        examples: Examples,
        metric: PerExampleMetric,
        noise_multiplier: float,
        randomness: RandomSource,
        device: torch.device,
        microbatch_size: int | None,
    ) -> None:
        self.validation, self.metric, self.device = examples, metric, device
        self.microbatch_size = microbatch_size or _DEFAULT_MICROBATCH_SIZE
        self.examples = len(examples)
        self.mean = NoisyMean(self.examples, noise_multiplier, randomness)
        self.std = self.mean.std
        self.ledger: Ledger | None = self.mean.ledger
        self.description = (
            f"the validation examples, with noise of standard deviation {self.std:.2g}"
        )

    def __call__(self, ended: TrainingResult) -> float:
        return self.mean.release(ended.run_id, lambda: self._values(ended.model))

    def ledger_of_one(self) -> Ledger | None:
        query = SumQuery("score", self.mean.noise_multiplier)
        return Ledger(self.mean.ledger.sampling, [((query,), 1)])

    def check(self, model: nn.Module) -> None:
        """OsoError if the model or the metric fails on a made-up example."""

        def values(inputs: Structure, targets: Tensor) -> Tensor:
            on_cpu = copy.deepcopy(model).cpu().float().eval()
            rows = [slice(row, row + 1) for row in range(len(targets))]
            return torch.stack(
                [self._value(on_cpu, select(inputs, row), targets[row]) for row in rows]
            )

        self.validation = widen(self.validation, values)
        inputs, targets = (
            map_tensors(lambda one: one.new_zeros(1, *one.shape[1:]), values)
            for values in self.validation.empty()
        )
        prepared = self._prepare(model)
        # Otherwise an example could change another one's score.
        check_forward_is_pure(prepared, self.validation.empty()[0])
        try:
            with torch.no_grad(), use_float32(self.device):
                value = float(self._seeded_value(prepared, inputs, targets))
                outputs = call_model(prepared, inputs)
                others = [targets + 1, *(one.argmax(dim=-1) for one in tensors_of(outputs)[:1])]
                for other in others:  # one of them has another value
                    with suppress(Exception):  # whatever a metric may do with no target
                        self._seeded_value(prepared, inputs, other)
                again = float(self._seeded_value(prepared, inputs, targets))
        except OsoError:
            raise
        except Exception as error:  # a model or a metric may raise any exception
            line = " ".join(str(error).split())
            shapes = ", ".join(str(list(one.shape[1:])) for one in tensors_of(inputs))
            raise OsoError(
                f"validation: the model or metric fails on an example of shape {shapes}, target of "
                f"shape {list(targets.shape[1:])}: {line}"
            ) from error
        if again != value and not (math.isnan(again) and math.isnan(value)):
            raise OsoError(
                "metric: the value of an example changes with the examples before it, so that one "
                "could move the score by more than its share; it must keep nothing between calls"
            )
        if not 0 <= value <= 1:
            _log.warning(
                "metric: %g on a made-up example; values on real ones are clamped to [0, 1]", value
            )
        if self.metric is is_correct:
            self._check_classes(outputs.shape[1])

    def _check_classes(self, classes: int) -> None:
        """OsoError for a target that no output of a classifier can be."""
        targets = getattr(self.validation, "targets", None)
        if targets is None:  # of a data set: an error would reveal the example
            return
        for chunk in split_rows(targets, torch.int64):
            for end in (int(chunk.min()), int(chunk.max())):
                if not 0 <= end < classes:
                    raise OsoError(
                        f"validation: targets contain {end}; must be 0 to {classes - 1}, for this "
                        f"model's {classes} outputs"
                    )

    def _prepare(self, model: nn.Module) -> nn.Module:
        """A copy that computes as in training, in float32."""
        return copy.deepcopy(model).to(self.device).float().eval()

    def _seeded_value(self, model: nn.Module, inputs: Structure, targets: Tensor) -> Tensor:
        with seeded(0, torch.device(self.device)):
            return self._value(model, inputs, targets)

    def _value(self, model: nn.Module, inputs: Structure, targets: Tensor) -> Tensor:
        value = torch.as_tensor(self.metric(call_model(model, inputs), targets))
        if value.numel() != 1:
            raise OsoError(
                f"metric: returned shape {list(value.shape)} for one example; must be a number"
            )
        return value.double().reshape(())

    def _values(self, model: nn.Module) -> Tensor:
        """The metric of each example, [n]; one at a time, so that none can affect another's."""
        model = self._prepare(model)
        values = []
        with torch.no_grad(), use_float32(self.device):
            for start in range(0, self.examples, self.microbatch_size):
                end = min(start + self.microbatch_size, self.examples)
                indices = torch.arange(start, end, device=self.device)
                inputs, (targets,), absent = self.validation.batch(indices[None])
                for row in range(len(targets)):
                    if absent is not None and absent[0, row]:
                        values.append(targets.new_tensor(math.nan, dtype=torch.float64))
                        continue
                    one = slice(row, row + 1)
                    # A copy: a product may be rounded by the address, that is, by the place.
                    inputs_of_one = map_tensors(torch.clone, select(inputs, (0, one)))
                    # Seeded, since one example more would change what is drawn for later ones.
                    values.append(self._seeded_value(model, inputs_of_one, targets[one]))
        return torch.stack(values)


def is_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Accuracy, the default metric: 1 if the largest of outputs [1, K] is the target's, else 0.

    Raises OsoError if these are not the outputs and the target of a classifier.
    """
    is_classifier = outputs.dim() == 2 and outputs.shape[1] > 1
    if not is_classifier or targets.dim() != 1 or targets.is_floating_point():
        raise OsoError(
            f"metric: the default needs outputs [1, K] and an integer target [1]; these are "
            f"{list(outputs.shape)} and {list(targets.shape)} ({targets.dtype})"
        )
    return (outputs.argmax(dim=-1) == targets).double()
