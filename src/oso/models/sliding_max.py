"""The maximum over 2 x 2 windows that move by single pixels: MaxPool2d(2, stride=1), faster.

PyTorch's pool keeps an index of eight bytes per output and, for windows that overlap, takes about
as long on a CPU as the convolutions around it. Here the maximum is taken along rows, then along
columns.
"""

from typing import Any

import torch
from torch import Tensor, nn


class SlidingMax(nn.Module):
    """[B, C, H, W] to [B, C, H - 1, W - 1]; among equal values the first has the gradient."""

    def forward(self, values: Tensor) -> Tensor:
        return _SlidingMax.apply(values)[0]


class _SlidingMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right = values[..., :-1], values[..., 1:]
        rows = torch.maximum(left, right)
        upper, lower = rows[..., :-1, :], rows[..., 1:, :]
        return torch.maximum(upper, lower), left >= right, upper >= lower

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        context.mark_non_differentiable(*output[1:])
        context.save_for_backward(*output[1:])

    @staticmethod
    def backward(context: Any, gradient: Tensor, *_: Any) -> Tensor:
        is_left, is_upper = context.saved_tensors
        rows = _spread(gradient, is_upper, -2)
        return _spread(rows, is_left, -1)


def _spread(gradient: Tensor, is_first: Tensor, dim: int) -> Tensor:
    """Give each gradient to the first or the second of the two neighbours along a dimension."""
    first = gradient * is_first
    second = gradient - first
    size = gradient.shape[dim]
    whole = torch.cat([first, torch.zeros_like(first.narrow(dim, 0, 1))], dim)
    whole.narrow(dim, 1, size).add_(second)
    return whole
