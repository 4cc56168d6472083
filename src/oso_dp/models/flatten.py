"""From images to rows, in the order of nn.Flatten(): channels first.

Convolutions are faster with channels last, so that the two orders meet here. In the backward pass
nn.Flatten() leaves the gradient in the rows' order, and whatever comes next reads it in leaps.
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
