"""Linear layers on sequences: example i's gradient is E_i^T A_i, a sum over its T rows.

Either of two forms is kept, whichever is small. Kernels: the per-example gradient itself, while it
is at most twice as large as the factors; then the sums cost T times less, too. Factors otherwise:
the norm is that of the Gram matrices, |G|^2 = sum_st (a_s . a_t) (e_s . e_t), and nothing per
example is formed. Which one depends on the layer and T alone, never on the batch.
"""

import math

import torch
from torch import Tensor, nn

from oso_dp.gradients.linear import LinearGradients
from oso_dp.gradients.materialized import MaterializedGradients
from oso_dp.gradients.protocol import Sums, chunks
from oso_dp.gradients.rounding_bounds import norm_upper_bound


def kernels_are_small(layer: nn.Linear, inputs: Tensor) -> bool:
    """For inputs [N, ..., I]. On a CPU the Gram matrices take longer there, too."""
    rows = math.prod(inputs.shape[1:-1])
    factors = rows * (layer.in_features + layer.out_features)
    return layer.in_features * layer.out_features <= 2 * factors


class SequenceKernels(MaterializedGradients):
    """inputs [N, ..., I], output gradients [N, ..., O]."""

    def __init__(self, layer: nn.Linear, inputs: Tensor, output_gradients: Tensor) -> None:
        inputs, errors = inputs.flatten(1, -2), output_gradients.flatten(1, -2)
        gradients = {"weight": torch.bmm(errors.transpose(1, 2), inputs)}
        if layer.bias is not None:
            exact = torch.promote_types(errors.dtype, torch.float32)
            gradients["bias"] = errors.sum(dim=1, dtype=exact)
        super().__init__(gradients)


class SequenceFactors:
    """The same as its rows' outer products: a Linear layer's, were each row an example."""

    def __init__(self, layer: nn.Linear, inputs: Tensor, output_gradients: Tensor) -> None:
        self.length = inputs[0, ..., 0].numel()  # T
        self.rows = LinearGradients(layer, inputs.flatten(0, -2), output_gradients.flatten(0, -2))

    def norms(self) -> Tensor:
        """Never below the norm of what `weighted_sums` adds for the example."""
        terms = self.rows.norms().unflatten(0, (-1, self.length)).sum(dim=1)  # inf: not usable
        inputs, errors = self.rows.inputs, self.rows.output_gradients
        sum_type = torch.promote_types(errors.dtype, torch.float32)
        widths = inputs.shape[1] + errors.shape[1]
        return norm_upper_bound(self._gram_squares(), terms, self.length, widths, sum_type)

    def drop(self, bad: Tensor) -> None:
        self.rows.drop(bad.repeat_interleave(self.length))

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        return self.rows.weighted_sums(weights.repeat_interleave(self.length, dim=2), onto)

    def _gram_squares(self) -> Tensor:
        """sum_st (a_s . a_t) (e_s . e_t), [N]; a bias is one more input, a constant 1."""
        inputs = self.rows.inputs.unflatten(0, (-1, self.length))
        errors = self.rows.output_gradients.unflatten(0, (-1, self.length))
        laid_out = 8 * self.length * (inputs.shape[2] + errors.shape[2] + 2 * self.length)
        squares = []
        for part in chunks(inputs, laid_out):
            one, other = inputs[part].double(), errors[part].double()
            gram = torch.bmm(one, one.transpose(1, 2)) + float(self.rows.has_bias)
            squares.append((gram * torch.bmm(other, other.transpose(1, 2))).sum(dim=(1, 2)))
        return torch.cat(squares)
