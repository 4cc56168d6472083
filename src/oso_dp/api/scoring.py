"""How a search scores its models: on public data, or on private ones with noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from oso_dp.api.arguments import call_for_number
from oso_dp.api.datasets import widen
from oso_dp.api.trainer import TrainingResult
from oso_dp.errors import OsoError
from oso_dp.gradients import check_forward_is_pure
from oso_dp.gradients.precision import use_float32
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noisy_mean import NoisyMean
from oso_dp.privacy.rng_sources import RandomSource
from oso_dp.training.task import Examples

PerExampleMetric = Callable[[Tensor, Tensor], float | Tensor]
_AT_A_TIME = 256  # examples, unless told otherwise


class Scorer(Protocol):
    """Of models, higher is better. What a statement says of them; their ledger."""

    description: str
    examples: int  # private ones, 0 if public
    std: float
    ledger: Ledger | None

    def __call__(self, ended: TrainingResult) -> float: ...

    def ledger_of_one(self) -> Ledger | None:
        """What one model's score costs."""


class PublicScorer:
    """What the caller's function gives, on data that need no protection."""

    description, examples, std = "data that need no protection", 0, 0.0
    ledger: Ledger | None = None

    def __init__(self, score: Callable[[nn.Module], float]) -> None:
        if not callable(score):
            raise OsoError(f"score: must be callable, not {type(score).__name__}")
        self.score = score

    def __call__(self, ended: TrainingResult) -> float:
        return call_for_number("score", self.score(copy.deepcopy(ended.model)))

    def ledger_of_one(self) -> Ledger | None:
        return None


class NoisyScorer:
    """The mean of `right` over private examples, with noise."""

    def __init__(
        self,
        examples: Examples,
        right: PerExampleMetric,
        noise_multiplier: float,
        randomness: RandomSource,
        place: torch.device,
        microbatch_size: int | None,
    ) -> None:
        self.tested, self.right, self.place = examples, right, place
        self.microbatch_size = microbatch_size or _AT_A_TIME
        self.examples = len(examples)
        self.share = NoisyMean(self.examples, noise_multiplier, randomness)
        self.std = self.share.std
        self.ledger: Ledger | None = self.share.ledger
        self.description = (
            f"the validation examples, with noise of standard deviation {self.std:.2g}"
        )

    def __call__(self, ended: TrainingResult) -> float:
        return self.share.release(ended.run_id, lambda: self._values(ended.model))

    def ledger_of_one(self) -> Ledger | None:
        query = SumQuery("score", self.share.noise_multiplier)
        return Ledger(self.share.ledger.sampling, [((query,), 1)])

    def check(self, model: nn.Module) -> None:
        """OsoError where the model does not take a made-up example, or `right` gives no score."""

        def values(inputs: Tensor, targets: Tensor) -> Tensor:
            on_host = copy.deepcopy(model).cpu().float().eval()
            each = zip(inputs.split(1), targets.split(1), strict=True)
            return torch.stack([self._value(on_host, *one) for one in each])

        self.tested = widen(self.tested, values)
        inputs, targets = (part.new_zeros(1, *part.shape[1:]) for part in self.tested.empty())
        ready = self._ready(model)
        check_forward_is_pure(ready, self.tested.empty()[0])  # else one would touch another's score
        try:
            with torch.no_grad(), use_float32(self.place):
                self._value(ready, inputs, targets)
        except OsoError:
            raise
        except Exception as error:  # whatever a model or `right` may do with another shape
            line = " ".join(str(error).split())
            raise OsoError(
                f"validation: the model or right fails on an example of shape "
                f"{list(inputs.shape[1:])}, target of shape {list(targets.shape[1:])}: {line}"
            ) from error

    def _ready(self, model: nn.Module) -> nn.Module:
        """A copy that computes as training does, in float32."""
        return copy.deepcopy(model).to(self.place).float().eval()

    def _value(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        value = torch.as_tensor(self.right(model(inputs), targets))
        if value.numel() != 1:
            raise OsoError(f"right: gave {list(value.shape)} for one example; it must be a number")
        return value.double().reshape(())

    def _values(self, model: nn.Module) -> Tensor:
        """[n], of one example at a time, so that none can touch another's."""
        model = self._ready(model)
        values = []
        with torch.no_grad(), use_float32(self.place):
            for start in range(0, self.examples, self.microbatch_size):
                end = min(start + self.microbatch_size, self.examples)
                places = torch.arange(start, end, device=self.place)
                (inputs,), (targets,), absent = self.tested.batch(places[None])
                for at in range(len(targets)):
                    if absent is not None and absent[0, at]:
                        values.append(inputs.new_tensor(math.nan, dtype=torch.float64))
                        continue
                    values.append(self._value(model, inputs[at : at + 1], targets[at : at + 1]))
        return torch.stack(values)


def predict_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the likeliest class of outputs [1, K] is the target, [1]; OsoError for other ones."""
    classes = outputs.dim() == 2 and outputs.shape[1] > 1
    if not classes or targets.dim() != 1 or targets.is_floating_point():
        raise OsoError(
            f"right: by default it counts classes, of outputs [1, K] and a whole target; these are "
            f"{list(outputs.shape)} and {list(targets.shape)} ({targets.dtype})"
        )
    return (outputs.argmax(dim=-1) == targets).double()
