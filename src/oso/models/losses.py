"""Losses and metrics per example, never averaged: the mean over a batch comes after the clip."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (everyone's name for it)
from torch import Tensor

# metric name -> (loss per example for training, metric per example), both [B]
PerExample = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """outputs [B, classes], targets int64 [B] -> [B]."""
    return F.cross_entropy(outputs, targets, reduction="none")


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest output is the target's, else 0: [B]."""
    return (outputs.argmax(dim=1) == targets).to(outputs.dtype)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error over each example's pixels: [B]."""
    return torch.square(outputs - targets).flatten(1).mean(dim=1)


LOSSES: dict[str, PerExample] = {"accuracy": cross_entropy, "mse": squared_error}
METRICS: dict[str, PerExample] = {"accuracy": correct, "mse": squared_error}
