"""Linear layers: the gradient is an outer product e_i a_i^T, so nothing per example is formed."""

import torch
from torch import Tensor, nn

from oso_dp.gradients.rules import LARGEST_NORM, Sums, row_norms


class LinearGradients:
    """inputs a [N, I], output gradients e [N, O]."""

    def __init__(self, layer: nn.Linear, inputs: Tensor, output_gradients: Tensor) -> None:
        self.inputs, self.output_gradients = inputs, output_gradients
        self.has_bias = layer.bias is not None

    def norms(self) -> Tensor:
        """|e a^T| = |e| |a|; the bias is one more input, a constant 1."""
        inputs, outputs = row_norms(self.inputs), row_norms(self.output_gradients)
        norms = outputs * inputs.hypot(inputs.new_tensor(self.has_bias))
        # A huge factor and a tiny one: their weighted product would be rounded as the tiny one is.
        usable = (inputs < LARGEST_NORM) & (outputs < LARGEST_NORM)
        return norms.masked_fill(~usable, torch.inf)

    def drop(self, bad: Tensor) -> None:
        # Both factors: zero times infinity is not zero.
        self.inputs = self.inputs.masked_fill(bad[:, None], 0.0)
        self.output_gradients = self.output_gradients.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        """All sums of a run in one matrix product: [J O, B] x [B, I].

        Neither a weighted error nor a product is rounded to less than the weights have.
        """
        runs, sums, _ = weights.shape
        errors = self.output_gradients.unflatten(0, (runs, -1)).to(weights.dtype)  # [R, B, O]
        inputs = self.inputs.unflatten(0, (runs, -1)).to(weights.dtype)  # [R, B, I]
        columns = weights.transpose(1, 2).contiguous()  # or the next lies so that `flatten` copies
        weighted = columns[..., None] * errors[:, :, None]  # [R, B, J, O]
        rows = weighted.flatten(2).transpose(1, 2)  # [R, J O, B]
        if onto is None:
            onto = {"weight": (rows @ inputs).unflatten(1, (sums, -1))}
            if self.has_bias:
                onto["bias"] = weights @ errors
            return onto
        onto["weight"].view(runs, -1, inputs.shape[2]).baddbmm_(rows, inputs)
        if self.has_bias:
            onto["bias"].baddbmm_(weights, errors)
        return onto
