"""Conv2d layers: the per-example kernels are small, so they are formed and kept.

With the unfolded input U_i [K, L] (K = in-channels x kernel height x width, L = output positions),
the gradient of the kernel is e_i U_i^T [O, K]. U is many times larger than the input, so it is
formed for a few examples at a time and stays in the cache.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from oso.training.gradients.rules import row_norms

CHUNK = 16  # examples whose unfolded inputs exist at the same time


class Conv2dGradients:
    """inputs [B, C, H, W], output gradients e [B, O, H', W']."""

    def __init__(self, layer: nn.Conv2d, inputs: Tensor, output_gradients: Tensor) -> None:
        assert not isinstance(layer.padding, str)  # `rule_for` keeps these away
        self.weight_shape = layer.weight.shape
        flat = output_gradients.flatten(2)  # [B, O, L]
        self.bias = flat.sum(dim=2) if layer.bias is not None else None  # [B, O]
        self.kernels = flat.new_empty(len(flat), self.weight_shape[0], layer.weight[0].numel())
        for start in range(0, len(flat), CHUNK):
            part = slice(start, start + CHUNK)
            unfolded = F.unfold(
                inputs[part], layer.kernel_size, layer.dilation, layer.padding, layer.stride
            )
            torch.bmm(flat[part], unfolded.transpose(1, 2), out=self.kernels[part])

    def norms(self) -> Tensor:
        kernels = row_norms(self.kernels)
        return kernels if self.bias is None else kernels.hypot(row_norms(self.bias))

    def drop(self, bad: Tensor) -> None:
        self.kernels.masked_fill_(bad[:, None, None], 0.0)
        if self.bias is not None:
            self.bias = self.bias.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        sums = {"weight": (weights @ self.kernels.flatten(1)).unflatten(1, self.weight_shape)}
        if self.bias is not None:
            sums["bias"] = weights @ self.bias
        return sums
