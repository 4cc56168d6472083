"""Conv2d layers: the per-example kernels are small, so they are formed and kept.

The gradient of example i's kernel is e_i U_i^T, where U_i is the unfolded input: for each position
of the output the patch that the kernel saw. U is many times larger than the input, so where the
layer moves down by single rows it is formed in one direction only: the patches' columns are laid
out, and each of the kernel's rows then reads its part of that from a shifted start.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso.training.gradients.rules import row_norms

CHUNK = 32  # examples whose unfolded inputs exist at the same time: they stay in the cache


class Conv2dGradients:
    """inputs [B, C, H, W], output gradients e [B, O, H', W']."""

    def __init__(self, layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor) -> None:
        self.weight_shape = layer.weight.shape
        self.bias = output_gradients.sum(dim=(2, 3)) if layer.bias is not None else None  # [B, O]
        form = _kernels_by_rows if layer.stride[0] == 1 else _kernels_by_patches
        self.kernels = inputs.new_empty(len(inputs), *self.weight_shape)
        for start in range(0, len(inputs), CHUNK):
            part = slice(start, start + CHUNK)
            form(layer, inputs[part], output_gradients[part], self.kernels[part])

    def norms(self) -> Tensor:
        kernels = row_norms(self.kernels)
        return kernels if self.bias is None else kernels.hypot(row_norms(self.bias))

    def drop(self, bad: Tensor) -> None:
        self.kernels.masked_fill_(bad.view(-1, 1, 1, 1, 1), 0.0)
        if self.bias is not None:
            self.bias = self.bias.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        sums = {"weight": (weights @ self.kernels.flatten(1)).unflatten(1, self.weight_shape)}
        if self.bias is not None:
            sums["bias"] = weights @ self.bias
        return sums


def _kernels_by_rows(layer: nn.Conv2d, inputs: Tensor, errors: Tensor, kernels: Tensor) -> None:
    """Write e_i U_i^T into kernels [B, O, C, KH, KW]; the layer's vertical stride is 1."""
    assert not isinstance(layer.padding, str)  # `rule_for` keeps these away
    vertical, horizontal = layer.padding
    padded = F.pad(inputs, (horizontal, horizontal, vertical, vertical))
    height, width = errors.shape[2:]
    stride, dilation = layer.stride[1], layer.dilation
    reach = stride * (width - 1) + 1
    starts = [column * dilation[1] for column in range(layer.kernel_size[1])]
    columns = torch.stack([padded[..., at : at + reach : stride] for at in starts], dim=2)
    columns = columns.flatten(1, 2).flatten(2)  # [B, C KW, rows of the padded input x W']
    errors = errors.flatten(2)  # [B, O, H' W']
    for row in range(layer.kernel_size[0]):
        first = row * dilation[0] * width
        seen = columns[:, :, first : first + height * width]
        kernels[:, :, :, row] = torch.bmm(errors, seen.transpose(1, 2)).unflatten(
            2, (-1, layer.kernel_size[1])
        )


def _kernels_by_patches(layer: nn.Conv2d, inputs: Tensor, errors: Tensor, kernels: Tensor) -> None:
    """The same for any stride, from whole patches."""
    assert not isinstance(layer.padding, str)
    patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    torch.bmm(errors.flatten(2), patches.transpose(1, 2), out=kernels.flatten(2))
