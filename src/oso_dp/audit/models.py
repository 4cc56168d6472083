"""Models of the audit: the linear model, alone, after dropout, used twice, with augmented views,
trained locally by users.

Each has the parameters of the linear model only. So a canary's gradient is always clipped, and its
direction does not depend on the random numbers (`oso_dp.audit.canaries`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oso_dp.models import build_model
from oso_dp.privacy.local_training import LocalTraining
from oso_dp.training.augmentation import Augment

_FIRST_USE_SCALE = 0.1  # of inputs; small, so that its norm is far below the sum's


@dataclass(frozen=True)
class AuditModel:
    """What is trained.

    Attributes:
        network: builds the model; None for the study's linear one.
        augment, views: of an example.
        local: what a user computes; None where an example is the unit of privacy. A canary is then
            a user with `rows` equal rows.
    """

    network: Callable[[], nn.Module] | None = None
    augment: Augment | None = None
    views: int = 1
    local: LocalTraining | None = None
    rows: int = 1


class _Tied(nn.Module):
    """One layer used twice: an example's gradient is the sum over both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = build_model("linear")

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(_FIRST_USE_SCALE * inputs) + self.linear(inputs)
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
    "users": AuditModel(local=LocalTraining(batch_size=1, learning_rate=0.1), rows=3),
}
