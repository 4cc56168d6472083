"""Linear layers: the gradient is an outer product e_i a_i^T, so nothing per example is formed."""

from collections.abc import Sequence

from torch import Tensor, nn

from oso_dp.gradients.protocol import Sums, is_async_device, row_norms
from oso_dp.gradients.rounding_bounds import outer_product_norms


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
    """The same of one run, where no example has weight in two sums."""
    for number in range(weights.shape[1]):
        weight, error, of_input = _with_weight(weights[0, number, :, None], errors[0], inputs[0])
        onto[0, number].addmm_((weight * error).T, of_input, beta=beta)


_LARGE = 2**15  # weights: of a smaller layer, all products cost less than to look who is where
_MOST = 0.75  # of the examples: to lay them out costs more than the others' zeros


def are_disjoint(weights: Tensor) -> bool:
    """Whether no example has weight in two sums, [R, J, B]."""
    return int(weights.count_nonzero(dim=1).max()) <= 1


def _with_weight(weight: Tensor, *values: Tensor) -> Sequence[Tensor]:
    """The rows of each whose weight, [B, 1], is not zero; all, if most have weight."""
    owned = weight[:, 0].nonzero().flatten()
    if len(owned) > _MOST * len(weight):
        return weight, *values
    return [rows.index_select(0, owned) for rows in (weight, *values)]
