"""Per-sample gradients of a batch between Opacus's backward pass and the optimizer's step.

A parameter's gradients are stored densely (`Dense`, as Opacus computes them) or, in ghost mode, as
the factors of which they are products (`LinearFactors`, `ConvFactors`, `EmbeddingFactors`). Both
give norms and any number of weighted sums without another backward pass.

These values are unsanitized. All arithmetic is in the optimizer's precision (float32 or better),
also under autocast: the norm and the sum must be of exactly the same gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.layer_gradients import (
    LARGEST_NORM,
    chunks,
    norm_upper_bound,
    outer_product_norms,
    row_norms,
)


class PerSampleGradient(ABC):
    """Gradients of `size` examples with respect to one parameter of p values."""

    size: int

    @abstractmethod
    def norms(self) -> Tensor:
        """float64 [B]: a float32 norm of a long row is too small, and would not be clipped."""

    @abstractmethod
    def sums(self, weights: Tensor) -> Tensor:
        """sum_i weights[j, i] g_i, for weights [J, B], as [J, p]."""

    @abstractmethod
    def blank(self, examples: Tensor) -> None:
        """Set the gradients of these examples (bool [B]) to zero, also NaN and infinity."""


class Dense(PerSampleGradient):
    """Each example's gradient, [B, ...]."""

    def __init__(self, gradients: Tensor, dtype: torch.dtype) -> None:
        self.size = len(gradients)
        self.gradients = gradients.to(dtype).reshape(len(gradients), math.prod(gradients.shape[1:]))

    def norms(self) -> Tensor:
        return row_norms(self.gradients)

    def sums(self, weights: Tensor) -> Tensor:
        return weights @ self.gradients

    def blank(self, examples: Tensor) -> None:
        self.gradients = self.gradients.masked_fill(examples[:, None], 0.0)


class Factored(PerSampleGradient):
    """Gradients as products of a layer's inputs and its output gradients."""

    def __init__(self, inputs: Tensor, outputs: Tensor) -> None:
        self.size = len(outputs)
        self.inputs, self.outputs = inputs, outputs

    def blank(self, examples: Tensor) -> None:
        self.outputs = _blank(self.outputs, examples)
        if self.inputs.is_floating_point():  # zero times infinity is NaN
            self.inputs = _blank(self.inputs, examples)

    def _weighted(self, weights: Tensor) -> list[Tensor]:
        """The output gradients times each row of weights [J, B]."""
        shape = [-1] + [1] * (self.outputs.dim() - 1)
        return [self.outputs * row.view(shape) for row in weights]


class LinearFactors(Factored):
    """A Linear layer's weight: inputs [B, T, i] and output gradients [B, T, o] at T positions."""

    def norms(self) -> Tensor:
        """Never below the norm of what `sums` adds, also where positions cancel."""
        size, length, width = self.outputs.shape
        factor_norms = (row_norms(values.flatten(0, 1)) for values in (self.inputs, self.outputs))
        terms = outer_product_norms(*factor_norms).view(size, length)
        if length == 1:
            return terms[:, 0]
        outputs, inputs = self.outputs.double(), self.inputs.double()
        products = (outputs @ outputs.mT) * (inputs @ inputs.mT)
        squares, widths = products.sum(dim=(1, 2)), width + inputs.shape[2]
        return norm_upper_bound(squares, terms.sum(dim=1), length, widths, self.outputs.dtype)

    def sums(self, weights: Tensor) -> Tensor:
        inputs = self.inputs.flatten(0, 1)
        rows = [weighted.flatten(0, 1).T @ inputs for weighted in self._weighted(weights)]
        return torch.stack([row.flatten() for row in rows])


class ConvFactors(Factored):
    """A convolution's kernel of p values: inputs [B, c, ...], output gradients [B, o, ...].

    `compute_dense` gives the kernel gradients [b, ...] of b examples, with `bytes_each` bytes per
    example. Norms and sums use the same chunks, so that both see bit-identical gradients.
    """

    def __init__(
        self,
        inputs: Tensor,
        outputs: Tensor,
        compute_dense: Callable[[Tensor, Tensor], Tensor],
        values: int,
        bytes_each: int,
    ) -> None:
        super().__init__(inputs, outputs)
        self.compute_dense, self.values, self.bytes_each = compute_dense, values, bytes_each

    def norms(self) -> Tensor:
        norms = self.outputs.new_empty(self.size, dtype=torch.float64)
        for chunk, kernels in self._chunks():
            norms[chunk] = row_norms(kernels)
        return norms

    def sums(self, weights: Tensor) -> Tensor:
        total = weights.new_zeros(len(weights), self.values)
        for chunk, kernels in self._chunks():
            total.addmm_(weights[:, chunk], kernels)
        return total

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        for chunk in chunks(self.outputs, self.bytes_each):
            yield chunk, self.compute_dense(self.inputs[chunk], self.outputs[chunk]).flatten(1)


class EmbeddingFactors(Factored):
    """An Embedding's table [v, d]: tokens [B, T] (inputs), output gradients [B, T, d]."""

    def __init__(self, inputs: Tensor, outputs: Tensor, words: int, padding: int | None) -> None:
        if padding is not None:  # its row is never trained
            outputs = outputs.masked_fill((inputs == padding)[..., None], 0.0)
        super().__init__(inputs, outputs)
        self.words = words

    def norms(self) -> Tensor:
        """As in LinearFactors: rows of one token may cancel."""
        size, length, width = self.outputs.shape
        terms = row_norms(self.outputs.flatten(0, 1)).view(size, length).sum(dim=1)
        outputs = self.outputs.double()
        same = self.inputs[:, :, None] == self.inputs[:, None, :]
        squares = ((outputs @ outputs.mT) * same).sum(dim=(1, 2))
        return norm_upper_bound(squares, terms, length, width, self.outputs.dtype)

    def sums(self, weights: Tensor) -> Tensor:
        tokens, width = self.inputs.flatten(), self.outputs.shape[-1]
        tables = self.outputs.new_zeros(len(weights), self.words, width)
        for table, weighted in zip(tables, self._weighted(weights), strict=True):
            table.index_add_(0, tokens, weighted.reshape(-1, width))
        return tables.flatten(1)


def _blank(values: Tensor, examples: Tensor) -> Tensor:
    return values.masked_fill(examples.view([-1] + [1] * (values.dim() - 1)), 0.0)


class PerSampleGradients:
    """Per-sample gradients of all parameters: the `BatchGradients` interface for one run (R = 1).

    `held` by parameter, None for one that the loss does not depend on; `sizes`: their numbers of
    values p. OsoError if the layers saw different numbers of examples.
    """

    def __init__(
        self,
        held: Sequence[PerSampleGradient | None],
        sizes: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        counts = {gradient.size for gradient in held if gradient is not None}
        if len(counts) > 1:
            raise OsoError(
                f"model: layers see {' and '.join(map(str, sorted(counts)))} examples in one "
                "batch; row i of each layer's input must belong to example i"
            )
        self.held, self.sizes, self.dtype, self.device = held, sizes, dtype, device
        self.size = counts.pop() if counts else 0
        self._norms = self._compute_norms()

    def _compute_norms(self) -> Tensor:
        by_parameter = [g.norms().to(self.device) for g in self.held if g is not None]
        if not by_parameter:
            return torch.zeros(self.size, dtype=self.dtype, device=self.device)
        norms = torch.linalg.vector_norm(torch.stack(by_parameter), dim=0)
        norms = norms.masked_fill(~(norms <= LARGEST_NORM), math.inf)
        unusable = norms == math.inf
        if unusable.any():  # such an example contributes nothing, not even zero times NaN
            for gradient in self.held:
                if gradient is not None:
                    gradient.blank(unusable)
        return norms.to(self.dtype)

    def norms(self) -> Tensor:
        """[1, B]; not finite for an example that must not contribute."""
        return self._norms[None]

    def layer_norms(self) -> Mapping[str, Tensor]:
        raise ValueError("layer groups: not supported by the Opacus drop-in")

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[0, j, i] g_i for weights [1, J, B], as [1, J, P]."""
        (rows,) = weights
        parts = [
            self._zeros(len(rows), size) if held is None else held.sums(rows).to(self.device)
            for held, size in zip(self.held, self.sizes, strict=True)
        ]
        return torch.cat(parts, dim=1)[None]

    def plain_sums(self, present: Tensor) -> Tensor:
        raise ValueError("sums without clipping: not supported by the Opacus drop-in")

    def _zeros(self, rows: int, size: int) -> Tensor:
        return torch.zeros(rows, size, dtype=self.dtype, device=self.device)
