"""What every case has: a model as people write it, a loss per example, made-up data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.gradients.structured import call_arguments, select

CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")
Loss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A model and data that it is trained on, n rows.

    loss: of outputs and targets of B examples to B losses. batch_size: expected. options: further
    arguments of `train_private`, which the peers have no counterpart of.
    """

    model: nn.Module
    inputs: Any
    targets: Tensor
    loss: Loss = CROSS_ENTROPY
    batch_size: int = 64
    options: dict[str, Any] = field(default_factory=dict)

    def first(self, count: int) -> tuple[tuple[Any, ...], dict[str, Any], Tensor]:
        """Arguments, keywords and targets of so many examples."""
        args, kwargs = call_arguments(select(self.inputs, slice(count)))
        return args, kwargs, self.targets[:count]


def classes(count: int, below: int) -> Tensor:
    """Targets."""
    return torch.randint(below, (count,))


def images(count: int, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side)


def logits_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Of a HuggingFace model's outputs."""
    return F.cross_entropy(outputs.logits, targets, reduction="none")
