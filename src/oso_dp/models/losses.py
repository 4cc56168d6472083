"""Losses and metrics per example, never averaged: the mean over a batch comes after the clip."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 (everyone's name for it)
from torch import Tensor

# (outputs [B, ...], targets [B, ...]) -> [B]
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


def summed_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error summed over each example's pixels: [B]."""
    return torch.square(outputs - targets).flatten(1).sum(dim=1)


# By the metric's name: the loss of a training, and the value that is evaluated.
LOSSES: dict[str, PerExample] = {"accuracy": cross_entropy, "mse": squared_error}
METRICS: dict[str, PerExample] = {"accuracy": correct, "mse": squared_error}


def training_loss(metric: str, over_pixels: str = "mean") -> PerExample:
    """The loss per example to train with; `over_pixels`, mean or sum, matters for `mse` only.

    The paper does not say which it is. What is reported is the mean in either case (`METRICS`).
    """
    return summed_squared_error if (metric, over_pixels) == ("mse", "sum") else LOSSES[metric]
