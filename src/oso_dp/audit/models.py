"""Models of the audit: `linear`, and each of what else an example may go through on its way.

The layer with parameters is the linear one of all of them, so a canary adds what it adds there
(`oso_dp.audit.canaries`): it is clipped, and its direction is constant, whatever is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oso_dp.models import build_model
from oso_dp.training.augmentation import Augment

_FIRST_USE = 0.1  # of the scale of the second, so that the norm of the first alone is far off


@dataclass(frozen=True)
class AuditModel:
    """network: builds the model; None for the study's linear one. augment, views: of an example."""

    network: Callable[[], nn.Module] | None = None
    augment: Augment | None = None
    views: int = 1


class _Tied(nn.Module):
    """One layer used twice: an example's gradient is the sum over both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = build_model("linear")

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(_FIRST_USE * inputs) + self.linear(inputs)
        return outputs


def _dropout() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.1), build_model("linear"))


def _rescale(example: Tensor) -> Tensor:
    return example * torch.empty(()).uniform_(0.5, 2)


MODELS = {
    "linear": AuditModel(),
    "dropout": AuditModel(_dropout),
    "tied": AuditModel(_Tied),
    "augmentations": AuditModel(lambda: build_model("linear"), _rescale, views=4),
}
