"""Linear layers: the gradient is an outer product e_i a_i^T, so nothing per example is formed.

On a sequence example i's gradient is E_i^T A_i, a sum over its T rows. Either of two forms is kept,
whichever is smaller. Kernels: the per-sample gradient itself; then the sums cost T times less, too.
Factors otherwise: of these, the norm is measured in the cheaper way. Either kernels are formed of a
few examples at a time, and not kept; or it is that of the Gram matrices, |G|^2 =
sum_st (a_s . a_t) (e_s . e_t), which takes float64. All this depends on the layer and T alone,
never on the batch.
"""

import math

import torch
from torch import Tensor, nn

from oso_dp.gradients.layer_gradients import (
    MaterializedGradients,
    Sums,
    chunks,
    is_async_device,
    kernel_norm_upper_bound,
    norm_upper_bound,
    outer_product_norms,
    row_norms,
)
from oso_dp.gradients.precision import float32

_LARGE = 2**15  # weights: of a smaller layer, all products cost less than to look who is where
_MOST = 0.75  # of the examples: to lay them out costs more than the others' zeros


class LinearGradients:
    """inputs a [N, I], output gradients e [N, O]."""

    def __init__(self, layer: nn.Linear, inputs: Tensor, output_gradients: Tensor) -> None:
        self.inputs, self.output_gradients = inputs, output_gradients
        self.has_bias = layer.bias is not None

    def norms(self) -> Tensor:
        """|e a^T| = |e| |a|; the bias is one more input, a constant 1."""
        inputs, outputs = row_norms(self.inputs), row_norms(self.output_gradients)
        return outer_product_norms(inputs.hypot(inputs.new_tensor(self.has_bias)), outputs)

    def drop(self, bad: Tensor) -> None:
        # Both factors: zero times infinity is not zero.
        self.inputs = self.inputs.masked_fill(bad[:, None], 0.0)
        self.output_gradients = self.output_gradients.masked_fill(bad[:, None], 0.0)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        """All sums of a run in one matrix product: [J O, B] x [B, I].

        Neither a weighted error nor a product is rounded to less than the weights have. Where no
        example is in two sums, each sum's product is of its own examples, which costs as much as a
        single sum.
        """
        runs, sums, _ = weights.shape
        errors = self.output_gradients.unflatten(0, (runs, -1)).to(weights.dtype)  # [R, B, O]
        inputs = self.inputs.unflatten(0, (runs, -1)).to(weights.dtype)  # [R, B, I]
        sizes = runs, sums, errors.shape[2], inputs.shape[2]
        beta = 1  # what is there already is added to
        if onto is None:
            beta, onto = 0, {"weight": weights.new_empty(sizes)}
            if self.has_bias:
                onto["bias"] = weights.new_empty(sizes[:3])
        if self.has_bias:
            onto["bias"].baddbmm_(weights, errors, beta=beta)
        if sums == 1 or sizes[2] * sizes[3] < _LARGE or is_async_device(weights):
            _add_all(onto["weight"], weights, errors, inputs, beta)
            return onto
        for run in range(runs):  # by its own examples, whatever the other runs have
            alone = slice(run, run + 1)
            add = _add_disjoint if are_disjoint(weights[alone]) else _add_all
            add(onto["weight"][alone], weights[alone], errors[alone], inputs[alone], beta)
        return onto


def _add_all(onto: Tensor, weights: Tensor, errors: Tensor, inputs: Tensor, beta: int) -> None:
    """To beta times [R, J, O, I]: weights [R, J, B], errors [R, B, O], inputs [R, B, I]."""
    columns = weights.transpose(1, 2).contiguous()  # or the next lies so that `flatten` copies
    weighted = columns[..., None] * errors[:, :, None]  # [R, B, J, O]
    rows = weighted.flatten(2).transpose(1, 2)  # [R, J O, B]
    onto.view(len(rows), -1, inputs.shape[2]).baddbmm_(rows, inputs, beta=beta)


def _add_disjoint(onto: Tensor, weights: Tensor, errors: Tensor, inputs: Tensor, beta: int) -> None:
    """The same of one run, where no example has weight in two sums: of those with weight alone."""
    for total, column in zip(onto[0], weights[0, :, :, None], strict=True):
        owned = column[:, 0].nonzero().flatten()
        weight, error, of_input = column, errors[0], inputs[0]
        if len(owned) <= _MOST * len(column):
            weight, error, of_input = (
                rows.index_select(0, owned) for rows in (weight, error, of_input)
            )
        total.addmm_((weight * error).T, of_input, beta=beta)


def are_disjoint(weights: Tensor) -> bool:
    """Whether no example has weight in two sums, [R, J, B]."""
    return int(weights.count_nonzero(dim=1).max()) <= 1


def kernels_are_small(layer: nn.Linear, inputs: Tensor) -> bool:
    """Whether a kernel has no more numbers than its factors, for inputs [N, ..., I]."""
    return _kernel_size(layer) <= _factors_size(layer, math.prod(inputs.shape[1:-1]))


def _kernel_size(layer: nn.Linear) -> int:
    return layer.in_features * layer.out_features


def _factors_size(layer: nn.Linear, rows: int) -> int:
    return rows * (layer.in_features + layer.out_features)


# Kernels of more numbers than so many times those of the factors take longer than Gram matrices:
# these have as many times fewer products, which take four times as long in float64.
_GRAM_PAYS = 4


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
        self.forms_kernels = _kernel_size(layer) <= _GRAM_PAYS * _factors_size(layer, self.length)
        self.rows = LinearGradients(layer, inputs.flatten(0, -2), output_gradients.flatten(0, -2))

    def norms(self) -> Tensor:
        """Never below the norm of what `weighted_sums` adds for the example."""
        terms = self.rows.norms().unflatten(0, (-1, self.length)).sum(dim=1)  # inf: not usable
        inputs, errors = (
            factor.unflatten(0, (-1, self.length))
            for factor in (self.rows.inputs, self.rows.output_gradients)
        )
        sum_type = torch.promote_types(errors.dtype, torch.float32)
        if self.forms_kernels:
            norms = self._kernel_norms(inputs, errors, sum_type)
            return kernel_norm_upper_bound(norms, terms, self.length, sum_type)
        squares, widths = self._gram_squares(inputs, errors), inputs.shape[2] + errors.shape[2]
        return norm_upper_bound(squares, terms, self.length, widths, sum_type)

    def drop(self, bad: Tensor) -> None:
        self.rows.drop(bad.repeat_interleave(self.length))

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        return self.rows.weighted_sums(weights.repeat_interleave(self.length, dim=2), onto)

    def _kernel_norms(self, inputs: Tensor, errors: Tensor, sum_type: torch.dtype) -> Tensor:
        """|sum_t e_t a_t^T|, [N], of a few examples at a time; a bias is one more input."""
        norms = []
        laid_out = errors.shape[2] * inputs.shape[2] * torch.finfo(sum_type).bits // 8
        with float32(inputs.device):
            for part in chunks(inputs, laid_out):
                one, other = inputs[part].to(sum_type), errors[part].to(sum_type)
                of_kernel = row_norms(torch.bmm(other.transpose(1, 2), one))
                of_bias = row_norms(other.sum(dim=1)) * float(self.rows.has_bias)
                norms.append(of_kernel.hypot(of_bias))
        return torch.cat(norms)

    def _gram_squares(self, inputs: Tensor, errors: Tensor) -> Tensor:
        """sum_st (a_s . a_t) (e_s . e_t), [N]; a bias is one more input, a constant 1."""
        laid_out = 8 * self.length * (inputs.shape[2] + errors.shape[2] + 2 * self.length)
        squares = []
        for part in chunks(inputs, laid_out):
            one, other = inputs[part].double(), errors[part].double()
            gram = torch.bmm(one, one.transpose(1, 2)) + float(self.rows.has_bias)
            squares.append((gram * torch.bmm(other, other.transpose(1, 2))).sum(dim=(1, 2)))
        return torch.cat(squares)
