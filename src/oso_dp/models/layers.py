"""Layers of the study's networks that are faster than torch's, with the same values.

`Flatten` gives rows in the order of nn.Flatten(), channels first. Convolutions are faster with
channels last, so the two orders meet here. In the backward pass nn.Flatten() leaves the gradient in
the rows' order, which the next layer reads with large strides.

`StrideOneMaxPool` is the maximum over 2 x 2 windows that move by single pixels, MaxPool2d(2,
stride=1). PyTorch's pool keeps an index of eight bytes per output and, for windows that overlap,
takes about as long on a CPU as the convolutions around it. Here the maximum is taken along rows,
then along columns. Which of two neighbours it was is kept as a number, 0 or 1, of the values' own
type: the backward pass multiplies by it, and a product of a number and a truth value takes five
times as long. The comparison, too, is made in that type: PyTorch compares short numbers into truth
values one at a time, ten times slower than into numbers.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Flatten(nn.Module):
    """[B, C, H, W] to [B, C H W]; the gradient has its channels last where the images had."""

    def forward(self, images: Tensor) -> Tensor:
        return _Flatten.apply(images)


class _Flatten(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor) -> Tensor:
        return images.flatten(1).clone() if images.is_contiguous() else images.flatten(1)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        (images,) = inputs
        context.shape, context.channels_first = images.shape, images.is_contiguous()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        images = gradient.view(context.shape)
        if context.channels_first:
            return images
        return images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class StrideOneMaxPool(nn.Module):
    """[B, C, H, W] to [B, C, H - 1, W - 1]; among equal values the first has the gradient."""

    def forward(self, values: Tensor) -> Tensor:
        if torch.is_inference_mode_enabled():
            return _greater(_greater(values, -1), -2)
        return _SlidingMax.apply(values)[0]


class _SlidingMax(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = _greater(values, -1)
        return _greater(rows, -2), _is_second(values, -1), _is_second(rows, -2)

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        context.mark_non_differentiable(*output[1:])
        context.save_for_backward(*output[1:])

    @staticmethod
    def vmap(
        _: Any, batched: tuple[int], values: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        """Only the last two dimensions matter, so one more in front changes nothing."""
        return _SlidingMax.apply(values.movedim(batched[0], 0)), (0, 0, 0)

    @staticmethod
    def backward(context: Any, gradient: Tensor, *_: Any) -> Tensor:
        is_right, is_lower = context.saved_tensors
        rows = _spread(gradient, is_lower, -2)
        return _spread(rows, is_right, -1)


def _neighbours(values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    size = values.shape[dim] - 1
    return values.narrow(dim, 0, size), values.narrow(dim, 1, size)


def _greater(values: Tensor, dim: int) -> Tensor:
    return torch.maximum(*_neighbours(values, dim))


def _is_second(values: Tensor, dim: int) -> Tensor:
    """1 where the second of two neighbours is greater, else 0."""
    first, second = _neighbours(values, dim)
    return second.clone().gt_(first)


def _spread(gradient: Tensor, is_second: Tensor, dim: int) -> Tensor:
    """Give each gradient to the first or the second of the two neighbours along a dimension."""
    moved = gradient * is_second
    whole = torch.cat([gradient - moved, torch.zeros_like(gradient.narrow(dim, 0, 1))], dim)
    _neighbours(whole, dim)[1].add_(moved)
    return whole
