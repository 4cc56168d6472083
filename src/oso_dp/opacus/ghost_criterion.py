"""The criterion of ghost clipping: a per-sample loss that needs one backward pass instead of two.

Opacus runs a second backward pass on the losses times their clipping weights. Here the first pass
stores the factors from which the weighted sums are computed (`per_sample_gradients`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from opacus.utils.fast_gradient_clipping_utils import (
    DPLossFastGradientClipping,
    DPTensorFastGradientClipping,
)
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from oso_dp.errors import OsoError
from oso_dp.gradients.pure_forward import check_unchanged
from oso_dp.gradients.random_numbers import seed_torch, seeded
from oso_dp.opacus.gradient_origins import find_leaves
from oso_dp.opacus.model_hooks import per_sample_gradient

_BATCHES_CHECKED = 3  # of random outputs; of each, the first and the last loss, and
_CHECKED_BETWEEN = 30  # of those between them


class GhostLoss(DPTensorFastGradientClipping):
    """Per-sample losses of a batch, [B]. Sums and multiples of them are `GhostLoss` again.

    `factors`: what multiplies each of the losses that were added.
    """

    factors: tuple[float, ...] = (1.0,)

    def backward(self) -> None:
        """Store each example's gradient, dense or factored, at the parameters.

        Of the sum, also of losses whose mean is taken: 1 / n in low precision is rounded, and one
        more example would change all others' gradients alike.
        """
        losses = self.loss_per_sample
        first = self.module.loss_factors = self.module.loss_factors or self.factors
        if self.factors != first:
            raise OsoError(
                f"loss: is multiplied by {_format(self.factors)}, in the first step by "
                f"{_format(first)}; must be constant, since a factor of a batch's own, such as "
                "1 / loss, changes the gradients of all its examples"
            )
        self._check_losses()
        self.module.are_losses_summed = True
        try:
            losses.sum().backward()
        finally:
            self.module.are_losses_summed = False
        for parameter in self.optimizer.params:
            parameter.grad = None  # the batch's gradient, which is not sanitized
            held = per_sample_gradient(parameter)
            if held is not None and held.size != len(losses):
                raise OsoError(
                    f"criterion: returned {len(losses)} losses for a batch of {held.size} "
                    "examples; must return one loss per example"
                )

    def _check_losses(self) -> None:
        """OsoError if what the script made of the criterion's losses mixes examples.

        Of the first and the last example, in the first batch of two or more finite losses.
        """
        losses = self.loss_per_sample
        if not losses.isfinite().all():  # 0 times infinity would count as a dependence
            return
        if outputs := _by_example(self.module.outputs, len(losses)):
            self.module.disable_hooks()  # they fire for gradients of a model's outputs, too
            try:
                is_mixed = _mixes(losses, outputs, len(losses))
            finally:
                self.module.enable_hooks()
            if is_mixed:
                raise OsoError(
                    "loss: a term or factor that was computed from the whole batch's outputs (a "
                    "mean) mixes its examples; compute it for each example alone"
                )
        if len(losses) > 1:
            self.module.keeps_outputs, self.module.outputs = False, ()

    def _like(self, result: DPTensorFastGradientClipping, factors: tuple[float, ...]) -> GhostLoss:
        losses, reduction = result.loss_per_sample, result.loss_reduction
        made = GhostLoss(self.module, self.optimizer, losses, reduction)
        made.factors = factors
        return made

    def _scaled(self, result: DPTensorFastGradientClipping, factor: float) -> GhostLoss:
        return self._like(result, tuple(factor * one for one in self.factors))

    def _added(self, result: DPTensorFastGradientClipping, other: Any) -> GhostLoss:
        return self._like(result, self.factors + getattr(other, "factors", ()))

    def __truediv__(self, other: Any) -> GhostLoss:
        return self._scaled(super().__truediv__(other), 1 / _scalar(other))

    def __mul__(self, other: Any) -> GhostLoss:
        return self._scaled(super().__mul__(other), _scalar(other))

    def __add__(self, other: Any) -> GhostLoss:
        return self._added(super().__add__(other), other)

    def __sub__(self, other: Any) -> GhostLoss:
        return self._added(super().__sub__(other), other)

    def __rsub__(self, other: Any) -> GhostLoss:
        return self._scaled(super().__rsub__(other), -1)

    def __neg__(self) -> GhostLoss:
        return self._scaled(super().__neg__(), -1)


def _scalar(factor: Any) -> float:
    """The factor of all examples; 1 where each example has its own."""
    return float(factor) if not torch.is_tensor(factor) or factor.numel() == 1 else 1.0


def _format(factors: tuple[float, ...]) -> str:
    return ", ".join(f"{factor:g}" for factor in factors)


class GhostCriterion(DPLossFastGradientClipping):
    """The user's criterion, called for per-sample losses; OsoError if their shape is not [B]."""

    checked = False  # that it does not mix examples, on a batch of two or more

    def __init__(self, module: Any, *arguments: Any) -> None:
        super().__init__(module, *arguments)
        module.keeps_outputs = module.needs_criterion = True

    def __call__(self, *args: Any, shape: Any = None, **kwargs: Any) -> GhostLoss:
        loss = super().__call__(*args, shape=shape, **kwargs)
        losses: torch.Tensor = loss.loss_per_sample
        if losses.dim() == 2 and losses.shape[1] == 1:
            losses = losses[:, 0]
        if losses.dim() != 1:
            raise OsoError(
                f"criterion: returned losses of shape {tuple(losses.shape)} with reduction='none'; "
                "must return one loss per example, [B]: give outputs and targets one shape, "
                "average the losses of an example"
            )
        has_all = self.module.example_count in (None, len(losses))  # else `backward` raises
        trains = self.module.was_called and not self.checked and len(losses) > 1
        if has_all and trains:
            self._check_inputs((args, kwargs), len(losses))
            self._check_mixing(args, shape, kwargs, len(losses))
            self.checked = True  # a rejected criterion is checked, and rejected, again
        return GhostLoss(self.module, self.optimizer, losses, self.loss_reduction)

    def _check_inputs(self, arguments: Any, size: int) -> None:
        """OsoError if what the script computes of the model's outputs mixes examples or is trained.

        Of the first and the last example, in the outputs whose first dimension is the examples'.
        """
        outputs = _by_example(self.module.outputs, size)
        inputs = [value for value in tree_leaves(arguments) if _is_output(value)]
        if not outputs:
            return
        if find_leaves(inputs, self.module.outputs):
            raise OsoError(
                "criterion: its inputs are computed from a tensor that requires a gradient, beside "
                "the model's outputs, whose gradient has no noise; make it a parameter of the model"
            )
        computed = [one for one in inputs if all(one is not output for output in outputs)]
        self.module.disable_hooks()  # they fire for gradients of a model's outputs, too
        try:
            is_mixed = any(_mixes(one, outputs, size) for one in computed if one.dim())
        finally:
            self.module.enable_hooks()
        if is_mixed:
            raise OsoError(
                "criterion: its inputs mix the examples of the model's outputs (a batch's mean, "
                "BatchNorm); compute them of each example alone"
            )

    def _check_mixing(self, args: Any, shape: Any, kwargs: Any, size: int) -> None:
        """OsoError if, on random outputs, a loss depends on another example.

        The first and the last, since a loss may depend on earlier or later examples only, and some
        between them, since it may depend on others for a few examples: the hardest. Each tensor
        must have one row (or the same number of rows) per loss, in the order of the examples.
        """
        devices = {a.device for a in tree_leaves(args) if torch.is_tensor(a)}

        def losses(arguments: Any) -> torch.Tensor:
            seed_torch(0, devices)
            positional, named = arguments
            result = super(GhostCriterion, self).__call__(*positional, shape=shape, **named)
            per_example: torch.Tensor = result.loss_per_sample
            return per_example

        def random_like(value: Any) -> Any:
            return torch.randn_like(value).requires_grad_() if _is_output(value) else value

        def probabilities_like(value: Any) -> Any:
            return torch.rand_like(value).requires_grad_() if _is_output(value) else value

        def repeat_example(value: Any, index: int) -> Any:
            """This example's rows in place of all; a scalar or a table stays."""
            if not torch.is_tensor(value) or value.dim() == 0 or len(value) % size:
                return value
            return torch.cat([value.detach()[_rows(value, index, size)]] * size)

        def check(seed: int) -> None:
            seed_torch(seed, devices)
            arguments = tree_map(random_like, (args, kwargs))
            try:
                in_batch = losses(arguments)
            except Exception:  # a binary cross-entropy takes probabilities only
                arguments = tree_map(probabilities_like, (args, kwargs))
                in_batch = losses(arguments)
            outputs = [one for one in tree_leaves(arguments) if _is_output(one)]
            between = (1 + torch.randperm(size - 2)[:_CHECKED_BETWEEN]).tolist() if size > 2 else []
            for index in (0, size - 1, *between):
                gradients = torch.autograd.grad(
                    in_batch[index], outputs, allow_unused=True, retain_graph=True
                )
                leaks = [_others(g, index, size) for g in gradients if g is not None]
                alone = losses(tree_map(partial(repeat_example, index=index), arguments))[index]
                same = torch.allclose(in_batch[index], alone, rtol=1e-3, atol=1e-6, equal_nan=True)
                if not same or any(leak.any() for leak in leaks):
                    raise OsoError(
                        "criterion: an example's loss depends on other examples of its batch; "
                        "ghost mode needs per-sample losses that are independent of each other"
                    )

        is_module = isinstance(self.criterion, nn.Module)  # which may keep what it sees in a buffer
        unchanged = (
            check_unchanged(self.criterion, argument="criterion") if is_module else nullcontext()
        )
        with seeded(0, *devices), torch.enable_grad(), unchanged:
            for seed in range(_BATCHES_CHECKED):
                check(seed)


def _is_output(value: Any) -> bool:
    return torch.is_tensor(value) and value.requires_grad


def _by_example(outputs: Sequence[torch.Tensor], size: int) -> list[torch.Tensor]:
    """Those with the same number of rows for each of `size` examples."""
    return [value for value in outputs if value.dim() and size and not len(value) % size]


def _mixes(value: torch.Tensor, outputs: Sequence[torch.Tensor], size: int) -> bool:
    """Whether an example's rows depend on the outputs of other examples; False if it has none."""
    for index in (0, size - 1) if not len(value) % size else ():
        rows = value[_rows(value, index, size)]
        direction = torch.linspace(1, 2, rows.numel(), dtype=rows.dtype, device=rows.device)
        gradients = torch.autograd.grad(
            rows, outputs, direction.view_as(rows), retain_graph=True, allow_unused=True
        )
        if any(_others(g, index, size).any() for g in gradients if g is not None):
            return True
    return False


def _rows(values: torch.Tensor, index: int, size: int) -> slice:
    """The rows of one of `size` examples."""
    count = len(values) // size
    return slice(count * index, count * (index + 1))


def _others(gradient: torch.Tensor, index: int, size: int) -> torch.Tensor:
    """Where a gradient is not zero outside of one example's rows."""
    nonzero = gradient != 0  # also true of NaN
    nonzero[_rows(gradient, index, size)] = False
    return nonzero
