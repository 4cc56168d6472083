"""Conv2d and ConvTranspose2d: the per-example kernels are small, so they are formed and kept.

A convolution's kernel sees, for each pixel of its small side, a patch of its large side; the
gradient of example i's kernel is U_i^T S_i, where the rows of U_i are the patches and those of S_i
the pixels. In a Conv2d the inputs are the large side and the output gradients the small one; in a
ConvTranspose2d it is the other way round.

U_i is many times larger than the image, so where the kernel moves down by single rows it is formed
in one direction only: the patches' columns are laid out, and each of the kernel's rows then reads
its part of that from a shifted start. Channels stand last, which keeps what is read together
together.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso.training.gradients.rules import row_norms

# Bytes of patches that exist at the same time: on a CPU they stay in the cache.
CHUNK_BYTES = {"cpu": 3 * 2**19, "cuda": 2**29}


class ConvGradients:
    """inputs [N, C, H, W], output gradients [N, O, H', W'] of either kind of layer."""

    def __init__(
        self, layer: nn.Conv2d | nn.ConvTranspose2d, inputs: Tensor, output_gradients: Tensor
    ) -> None:
        # [N, O]
        self.bias = output_gradients.sum(dim=(2, 3)) if layer.bias is not None else None
        sides = [inputs.permute(0, 2, 3, 1), output_gradients.permute(0, 2, 3, 1)]
        large, small = reversed(sides) if layer.transposed else sides
        form = _kernels_by_rows if layer.stride[0] == 1 else _kernels_by_patches
        self.kernels = inputs.new_empty(  # [N, KH, KW, channels of the large side, of the small]
            len(inputs), *layer.kernel_size, large.shape[-1], small.shape[-1]
        )
        patches = small[0, ..., 0].numel() * layer.kernel_size[1] * large.shape[-1]
        chunk = max(1, CHUNK_BYTES[inputs.device.type] // (patches * inputs.element_size()))
        for start in range(0, len(inputs), chunk):
            part = slice(start, start + chunk)
            form(layer, large[part], small[part], self.kernels[part])

    def norms(self) -> Tensor:
        kernels = row_norms(self.kernels)
        return kernels if self.bias is None else kernels.hypot(row_norms(self.bias))

    def drop(self, bad: Tensor) -> None:
        self.kernels.masked_fill_(bad.view(-1, 1, 1, 1, 1), 0.0)
        if self.bias is not None:
            self.bias = self.bias.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        runs = len(weights)
        kernels = weights @ self.kernels.view(runs, -1, self.kernels[0].numel())
        kernels = kernels.unflatten(2, self.kernels.shape[1:])
        sums = {"weight": kernels.permute(0, 1, 5, 4, 2, 3)}
        if self.bias is not None:
            sums["bias"] = weights @ self.bias.unflatten(0, (runs, -1))
        return sums


def _kernels_by_rows(
    layer: nn.Conv2d | nn.ConvTranspose2d, large: Tensor, small: Tensor, kernels: Tensor
) -> None:
    """Write U_i^T S_i into kernels, from large [N, H, W, C] and small [N, H', W', O]."""
    padded = _padded(layer, large)
    height, width = small.shape[1:3]
    stride, dilation = layer.stride[1], layer.dilation
    reach = stride * (width - 1) + 1
    starts = [column * dilation[1] for column in range(layer.kernel_size[1])]
    columns = torch.stack([padded[:, :, at : at + reach : stride] for at in starts], dim=3)
    columns = columns.flatten(3).flatten(1, 2)  # [N, rows of the padded image x W', KW C]
    pixels = small.flatten(1, 2)  # [N, H' W', O]
    for row in range(layer.kernel_size[0]):
        first = row * dilation[0] * width
        seen = columns[:, first : first + height * width]
        kernels[:, row] = torch.bmm(seen.transpose(1, 2), pixels).view_as(kernels[:, row])


def _kernels_by_patches(
    layer: nn.Conv2d | nn.ConvTranspose2d, large: Tensor, small: Tensor, kernels: Tensor
) -> None:
    """The same for any stride, from whole patches."""
    padded = _padded(layer, large).permute(0, 3, 1, 2)
    height, width = (
        stride * (size - 1) + dilation * (kernel - 1) + 1
        for stride, size, dilation, kernel in zip(
            layer.stride, small.shape[1:3], layer.dilation, layer.kernel_size, strict=True
        )
    )
    patches = F.unfold(  # [N, C KH KW, H' W']
        padded[..., :height, :width], layer.kernel_size, layer.dilation, 0, layer.stride
    )
    found = torch.bmm(patches, small.flatten(1, 2)).unflatten(1, (-1, *layer.kernel_size))
    kernels.copy_(found.permute(0, 2, 3, 1, 4))


def _padded(layer: nn.Conv2d | nn.ConvTranspose2d, large: Tensor) -> Tensor:
    assert not isinstance(layer.padding, str)  # `rule_for` keeps these away
    vertical, horizontal = layer.padding
    return F.pad(large, (0, 0, horizontal, horizontal, vertical, vertical))
