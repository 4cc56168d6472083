"""Convolutions over one or two dimensions: per-sample kernels are kept where they are small.

Deep layers have large kernels and few pixels: there the patches and output gradients are kept, as
the rows of a sequence (`ConvFactors`).

A convolution's kernel sees, for each pixel of its small side, a patch of its large side; the
gradient of example i's kernel is U_i^T S_i, where the rows of U_i are the patches and those of S_i
the pixels. In a Conv2d the inputs are the large side and the output gradients the small one; in a
ConvTranspose2d it is the other way round. What Conv1d sees is an image of one row.

U_i is many times larger than the image, and laying it out takes as long as multiplying it. So
channels stand last, and where the kernel moves down by single rows U_i is formed in one direction
only: the patches' columns are laid out, in one pass, and each of the kernel's rows then reads its
part of that from a shifted start. Numbers of two bytes are laid out whole: their products take no
parts of a matrix without copying them. A single channel has too little in a row for either: then it
is U_i^T that is laid out, whose rows are rows of the image.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso_dp.gradients.layer_gradients import Sums, chunks, row_norms
from oso_dp.gradients.linear import SequenceFactors


class _Window(NamedTuple):
    """How a kernel moves over the large side: of two dimensions each, down and to the right."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


class ConvGradients:
    """inputs [N, C, (H,) W], output gradients [N, O, (H',) W'], also of transposed layers."""

    def __init__(
        self, layer: nn.modules.conv._ConvNd, inputs: Tensor, output_gradients: Tensor
    ) -> None:
        assert not isinstance(layer.padding, str)  # `find_rule` keeps these away
        window = _Window(layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        self.has_rows = inputs.dim() == 4
        if not self.has_rows:
            inputs, output_gradients = inputs.unsqueeze(2), output_gradients.unsqueeze(2)
            window = _Window(
                *((first, *one) for first, one in zip((1, 1, 0, 1), window, strict=True))
            )
        self.bias = None  # [N, O]
        if layer.bias is not None:
            exact = torch.promote_types(output_gradients.dtype, torch.float32)
            self.bias = output_gradients.sum(dim=(2, 3), dtype=exact)
        sides = [inputs.permute(0, 2, 3, 1), output_gradients.permute(0, 2, 3, 1)]
        large, small = reversed(sides) if layer.transposed else sides
        self.kernels = inputs.new_empty(  # [N, channels of the small side, KH, KW, of the large]
            len(inputs), small.shape[-1], *window.kernel_size, large.shape[-1]
        )
        by_rows = window.stride[0] == 1 and large.shape[-1] > 1 and inputs.element_size() > 2
        form = _kernels_by_rows if by_rows else _kernels_by_patches
        seen = window.kernel_size[1] if by_rows else window.kernel_size[0] * window.kernel_size[1]
        patches = small[0, ..., 0].numel() * seen * large.shape[-1] * inputs.element_size()
        for part in chunks(inputs, patches):
            form(window, large[part], small[part], self.kernels[part])

    @property
    def gradients(self) -> dict[str, Tensor]:
        """By the parameter's name, [N, *its shape]."""
        weight = self.kernels.permute(0, 1, 4, 2, 3)
        by_name = {"weight": weight if self.has_rows else weight.squeeze(3)}
        return by_name if self.bias is None else by_name | {"bias": self.bias}

    def norms(self) -> Tensor:
        kernels = row_norms(self.kernels)
        return kernels if self.bias is None else kernels.hypot(row_norms(self.bias))

    def drop(self, bad: Tensor) -> None:
        self.kernels.masked_fill_(bad.view(-1, 1, 1, 1, 1), 0.0)
        if self.bias is not None:
            self.bias = self.bias.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        runs = len(weights)
        kernels = self.kernels.view(runs, -1, self.kernels[0].numel()).to(weights.dtype)
        bias = None if self.bias is None else self.bias.unflatten(0, (runs, -1)).to(weights.dtype)
        if onto is None:
            sums = (
                (weights @ kernels).unflatten(2, self.kernels.shape[1:]).permute(0, 1, 2, 5, 3, 4)
            )
            onto = {"weight": sums if self.has_rows else sums.squeeze(4)}
            if bias is not None:
                onto["bias"] = weights @ bias
            return onto
        total = onto["weight"] if self.has_rows else onto["weight"].unsqueeze(4)
        total.permute(0, 1, 2, 4, 5, 3).flatten(2).baddbmm_(weights, kernels)
        if bias is not None:
            onto["bias"].baddbmm_(weights, bias)
        return onto


# Kernels of so many times the numbers of patches and output gradients are not kept.
_FACTORS_PAY = 2


def factors_pay(layer: nn.Module, inputs: Tensor) -> bool:
    """Whether to keep the factors of a convolution of images [N, C, H, W]."""
    if type(layer) is not nn.Conv2d or inputs.dim() != 4 or inputs.element_size() < 4:
        return False
    rows = 1
    for place, size in enumerate(inputs.shape[2:]):
        reach = layer.dilation[place] * (layer.kernel_size[place] - 1) + 1
        padding = layer.padding[place]
        assert isinstance(padding, int)  # `find_rule` keeps text away
        rows *= (size + 2 * padding - reach) // layer.stride[place] + 1
    patch = layer.in_channels * math.prod(layer.kernel_size)
    return layer.out_channels * patch >= _FACTORS_PAY * rows * (patch + layer.out_channels)


def conv_factors(
    layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor
) -> tuple[Tensor, Tensor]:
    """Patches [N, T, C KH KW] and output gradients [N, T, O]."""
    assert not isinstance(layer.padding, str)
    patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return patches.transpose(1, 2), output_gradients.flatten(2).transpose(1, 2)


class ConvFactors(SequenceFactors):
    """The same of a Conv2d as a Linear layer on the sequence of its patches."""

    def __init__(self, layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor) -> None:
        patches, errors = conv_factors(layer, inputs, output_gradients)
        has_bias = layer.bias is not None
        linear = nn.Linear(patches.shape[2], errors.shape[2], has_bias, device="meta")
        super().__init__(linear, patches, errors)
        self.kernel = (layer.in_channels, *layer.kernel_size)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        if onto is not None:
            onto = onto | {"weight": onto["weight"].flatten(3)}
        sums = super().weighted_sums(weights, onto)
        return sums | {"weight": sums["weight"].unflatten(3, self.kernel)}


def _kernels_by_rows(window: _Window, large: Tensor, small: Tensor, kernels: Tensor) -> None:
    """Write (U_i^T S_i)^T into kernels, from large [N, H, W, C] and small [N, H', W', O]."""
    padded = _pad_input(window, large)
    count, rows, _, channels = padded.shape
    height, width = small.shape[1:3]
    example, down, right, _ = padded.stride()
    columns = padded.as_strided(  # [N, rows of the padded image, W', KW, C]
        (count, rows, width, window.kernel_size[1], channels),
        (example, down, right * window.stride[1], right * window.dilation[1], 1),
        padded.storage_offset(),
    )
    columns = columns.reshape(count, rows * width, -1)
    pixels = small.flatten(1, 2).transpose(1, 2)  # [N, O, H' W']
    for row in range(window.kernel_size[0]):
        first = row * window.dilation[0] * width
        seen = columns[:, first : first + height * width]
        kernels[:, :, row] = torch.bmm(pixels, seen).view_as(kernels[:, :, row])


def _kernels_by_patches(window: _Window, large: Tensor, small: Tensor, kernels: Tensor) -> None:
    """The same for any stride, from whole patches."""
    padded = _pad_input(window, large)
    channels = padded.shape[3]
    example, down, right, _ = padded.stride()
    of_pixel = (down * window.stride[0], right * window.stride[1])
    in_patch = (down * window.dilation[0], right * window.dilation[1], 1)
    count, height, width, _ = small.shape
    patch = (*window.kernel_size, channels)
    start = padded.storage_offset()
    pixels = small.flatten(1, 2)  # [N, H' W', O]
    if channels == 1:
        shape, strides = (count, *patch, height, width), (example, *in_patch, *of_pixel)
        patches = padded.as_strided(shape, strides, start).reshape(count, -1, height * width)
        kernels.copy_(torch.bmm(patches, pixels).transpose(1, 2).unflatten(2, patch))
    else:
        shape, strides = (count, height, width, *patch), (example, *of_pixel, *in_patch)
        patches = padded.as_strided(shape, strides, start).reshape(count, height * width, -1)
        torch.bmm(pixels.transpose(1, 2), patches, out=kernels.view(count, kernels.shape[1], -1))


def _pad_input(window: _Window, large: Tensor) -> Tensor:
    vertical, horizontal = window.padding
    if not (vertical or horizontal):
        return large.contiguous()
    return F.pad(large, (0, 0, horizontal, horizontal, vertical, vertical)).contiguous()
