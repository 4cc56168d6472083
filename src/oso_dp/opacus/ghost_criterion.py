"""The criterion of ghost mode: a loss per example, whose backward pass is one, not two.

Opacus's own goes back a second time, with the loss of each example times its clipping weight. Here
the first pass left all that the weighted sums need (`model_hooks.GhostLayers`).
"""

from __future__ import annotations

from typing import Any

import torch
from opacus.utils.fast_gradient_clipping_utils import (
    DPLossFastGradientClipping,
    DPTensorFastGradientClipping,
)

from oso_dp.errors import OsoError
from oso_dp.opacus.model_hooks import held_by


class GhostLoss(DPTensorFastGradientClipping):
    """The losses of a batch, [B]. Sums and multiples of such losses are such losses again."""

    def backward(self) -> None:
        """Leave each example's gradient, in factors or whole, at the parameters."""
        losses = self.loss_per_sample
        reduced = losses.mean() if self.loss_reduction == "mean" else losses.sum()
        reduced.backward()
        for parameter in self.optimizer.params:
            parameter.grad = None  # of the whole batch, not sanitized
            held = held_by(parameter)
            if held is not None and held.size != len(losses):
                raise OsoError(
                    f"criterion: returned {len(losses)} losses for a batch of {held.size} "
                    "examples; it must return one of each example"
                )

    def _like(self, result: DPTensorFastGradientClipping) -> GhostLoss:
        losses, reduction = result.loss_per_sample, result.loss_reduction
        return GhostLoss(self.module, self.optimizer, losses, reduction)

    def __truediv__(self, other: Any) -> GhostLoss:
        return self._like(super().__truediv__(other))

    def __mul__(self, other: Any) -> GhostLoss:
        return self._like(super().__mul__(other))

    def __add__(self, other: Any) -> GhostLoss:
        return self._like(super().__add__(other))

    def __sub__(self, other: Any) -> GhostLoss:
        return self._like(super().__sub__(other))

    def __rsub__(self, other: Any) -> GhostLoss:
        return self._like(super().__rsub__(other))

    def __neg__(self) -> GhostLoss:
        return self._like(super().__neg__())


class GhostCriterion(DPLossFastGradientClipping):
    """The user's criterion, called for a loss per example; OsoError if it returns another shape."""

    def __call__(self, *args: Any, shape: Any = None, **kwargs: Any) -> GhostLoss:
        loss = super().__call__(*args, shape=shape, **kwargs)
        losses: torch.Tensor = loss.loss_per_sample
        if losses.dim() != 1:
            raise OsoError(
                f"criterion: returned losses of shape {tuple(losses.shape)} under reduction='none';"
                " it must return one loss of each example, [B]"
            )
        return GhostLoss(self.module, self.optimizer, losses, self.loss_reduction)
