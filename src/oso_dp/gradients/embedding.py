"""Embeddings: of each example only the words that it holds have a gradient.

Where a word stands several times in an example, its output gradients add up to one row of the
table; the norm is that of the rows. These sums are kept, T rows of an example at most, so that what
is measured is what is summed. The table itself, V rows, exists for the sums over the batch alone.
"""

import torch
from torch import Tensor, nn

from oso_dp.gradients.protocol import Sums, row_norms


class EmbeddingGradients:
    """inputs, whole numbers [N, ...]; output gradients [N, ..., D]."""

    def __init__(self, layer: nn.Embedding, inputs: Tensor, output_gradients: Tensor) -> None:
        words = inputs.reshape(len(inputs), -1).long()
        errors = output_gradients.reshape(*words.shape, -1)
        if layer.padding_idx is not None:  # its row is a constant
            errors = errors.masked_fill((words == layer.padding_idx)[..., None], 0.0)
        self.table = layer.num_embeddings
        self.words, self.rows = _sum_by_word(words, errors)

    def norms(self) -> Tensor:
        return row_norms(self.rows)

    def drop(self, bad: Tensor) -> None:
        self.rows = self.rows.masked_fill(bad[:, None, None], 0.0)

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        runs, sums, batch = weights.shape
        rows = self.rows.to(weights.dtype)
        if onto is None:
            onto = {"weight": weights.new_zeros(runs, sums, self.table, rows.shape[2])}
        table = onto["weight"].view(-1, rows.shape[2])  # [R J V, D]
        first = torch.arange(runs, device=rows.device).repeat_interleave(batch) * sums * self.table
        places = self.words + first[:, None]
        for number, column in enumerate(weights.unbind(dim=1)):
            weighted = column.flatten()[:, None, None] * rows
            table.index_add_(0, (places + number * self.table).flatten(), weighted.flatten(0, 1))
        return onto


def _sum_by_word(words: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Each example's different words [N, T] with the sums of their rows of errors, [N, T, D].

    What is left over of T has word 0 and a sum of zero.
    """
    count, length = words.shape
    in_order, order = words.sort(dim=1)
    ranks = torch.zeros_like(words)
    ranks[:, 1:] = (in_order[:, 1:] != in_order[:, :-1]).cumsum(dim=1)
    places = torch.empty_like(words).scatter_(1, order, ranks)
    different = torch.zeros_like(words).scatter_(1, places, words)
    exact = torch.promote_types(errors.dtype, torch.float32)
    sums = errors.new_zeros(count * length, errors.shape[2], dtype=exact)
    first = torch.arange(count, device=words.device)[:, None] * length
    sums.index_add_(0, (first + places).flatten(), errors.flatten(0, 1).to(exact))
    return different, sums.unflatten(0, (count, length))
