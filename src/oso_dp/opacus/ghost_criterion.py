"""The criterion of ghost mode: a loss per example, whose backward pass is one, not two.

Opacus's own goes back a second time, with the loss of each example times its clipping weight. Here
the first pass left all that the weighted sums need (`model_hooks.GhostLayers`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from opacus.utils.fast_gradient_clipping_utils import (
    DPLossFastGradientClipping,
    DPTensorFastGradientClipping,
)
from torch.utils._pytree import tree_leaves, tree_map

from oso_dp.errors import OsoError
from oso_dp.opacus.model_hooks import per_sample_gradient


class GhostLoss(DPTensorFastGradientClipping):
    """The losses of a batch, [B]. Sums and multiples of such losses are such losses again."""

    def backward(self) -> None:
        """Leave each example's gradient, in factors or whole, at the parameters."""
        losses = self.loss_per_sample
        reduced = losses.mean() if self.loss_reduction == "mean" else losses.sum()
        reduced.backward()
        for parameter in self.optimizer.params:
            parameter.grad = None  # of the whole batch, not sanitized
            held = per_sample_gradient(parameter)
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

    tried = False  # whether it mixes examples, with a batch of two or more

    def __call__(self, *args: Any, shape: Any = None, **kwargs: Any) -> GhostLoss:
        loss = super().__call__(*args, shape=shape, **kwargs)
        losses: torch.Tensor = loss.loss_per_sample
        if losses.dim() != 1:
            raise OsoError(
                f"criterion: returned losses of shape {tuple(losses.shape)} under reduction='none';"
                " it must return one loss of each example, [B]"
            )
        whole = self.module.example_count in (None, len(losses))  # else `backward` says so
        if whole and not self.tried and len(losses) > 1:
            self._try(args, shape, kwargs, len(losses))
            self.tried = True  # one that was refused is tried, and refused, again
        return GhostLoss(self.module, self.optimizer, losses, self.loss_reduction)

    def _try(self, args: Any, shape: Any, kwargs: Any, size: int) -> None:
        """OsoError if, of made-up outputs, the first or last loss depends on another example.

        The last one, too: a loss may lean on the examples before it. Row i of each tensor must be
        example i's, as many rows as losses or a multiple of them.
        """
        devices = [a.device for a in tree_leaves(args) if torch.is_tensor(a) and a.is_cuda]

        def losses(of: Any) -> torch.Tensor:
            torch.manual_seed(0)
            positional, named = of
            result = super(GhostCriterion, self).__call__(*positional, shape=shape, **named)
            per_example: torch.Tensor = result.loss_per_sample
            return per_example

        def made_up(value: Any) -> Any:
            if not torch.is_tensor(value) or not value.requires_grad:
                return value
            return torch.randn_like(value).requires_grad_()

        def alike(value: Any, place: int) -> Any:
            """This example's rows for all; a scalar or a table stays."""
            if not torch.is_tensor(value) or value.dim() == 0 or len(value) % size:
                return value
            return torch.cat([value.detach()[_rows(value, place, size)]] * size)

        with torch.random.fork_rng(devices=devices), torch.enable_grad():
            torch.manual_seed(0)
            of = tree_map(made_up, (args, kwargs))
            outputs = [v for v in tree_leaves(of) if torch.is_tensor(v) and v.requires_grad]
            whole = losses(of)
            for place in (0, size - 1):
                parts = torch.autograd.grad(
                    whole[place], outputs, allow_unused=True, retain_graph=True
                )
                moved = [_others(part, place, size) for part in parts if part is not None]
                other = losses(tree_map(partial(alike, place=place), of))[place]
                same = torch.allclose(whole[place], other, rtol=1e-3, atol=1e-6, equal_nan=True)
                if not same or any(one.any() for one in moved):
                    raise OsoError(
                        "criterion: an example's loss depends on the other examples of its batch; "
                        "ghost mode needs one loss of each example alone"
                    )


def _rows(values: torch.Tensor, place: int, size: int) -> slice:
    """Those of the example at this place, of as many rows as examples or a multiple of them."""
    count = len(values) // size
    return slice(count * place, count * (place + 1))


def _others(part: torch.Tensor, place: int, size: int) -> torch.Tensor:
    """Where a gradient is not zero but in the rows of the example at this place."""
    moved = part != 0  # NaN is not, either
    moved[_rows(part, place, size)] = False
    return moved
