"""What is held of a batch's per-example gradients between Opacus's backward pass and the step.

Parameter by parameter: the gradients themselves (`Samples`, what Opacus computes), or the factors
that they are products of (`OuterProducts`, `Kernels`, `TokenRows`), which ghost mode keeps instead.
Either way there are norms, and as many weighted sums as are asked for, without another backward
pass.

Here a value of a single example is seen, as in the rooms `gradients` and `privacy`. All arithmetic
is in the optimizer's precision (float32 or better), whatever autocast computed in: what arrives is,
by definition, each example's gradient, and norm and sum must be of the very same one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.gradients.protocol import LARGEST_NORM, chunks, row_norms
from oso_dp.gradients.rounding_bounds import norm_upper_bound, outer_product_norms


class PerSampleGradient(ABC):
    """Of one parameter with p numbers, the gradients of `size` examples."""

    size: int

    @abstractmethod
    def norms(self) -> Tensor:
        """float64 [B]: a float32 norm of a long row is too small, and lets its example through."""

    @abstractmethod
    def sums(self, weights: Tensor) -> Tensor:
        """sum_i weights[j, i] g_i, for weights [J, B], as [J, p]."""

    @abstractmethod
    def blank(self, examples: Tensor) -> None:
        """Make the gradients of these examples (bool [B]) zero, whatever they hold."""


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
    """A gradient as a product of what entered the layer and what came back to its output."""

    def __init__(self, inputs: Tensor, outputs: Tensor) -> None:
        self.size = len(outputs)
        self.inputs, self.outputs = inputs, outputs

    def blank(self, examples: Tensor) -> None:
        self.outputs = _blank(self.outputs, examples)
        if self.inputs.is_floating_point():  # zero times infinity would be no number
            self.inputs = _blank(self.inputs, examples)

    def _weighted(self, weights: Tensor) -> list[Tensor]:
        """The outputs times each row of weights [J, B]."""
        shape = [-1] + [1] * (self.outputs.dim() - 1)
        return [self.outputs * row.view(shape) for row in weights]


class LinearFactors(Factored):
    """A Linear layer's weight: inputs [B, T, i], outputs' gradients [B, T, o], T places each."""

    def norms(self) -> Tensor:
        """Never below the norm of what `sums` adds for the example, also where places cancel."""
        size, length, width = self.outputs.shape
        of_places = (row_norms(values.flatten(0, 1)) for values in (self.inputs, self.outputs))
        terms = outer_product_norms(*of_places).view(size, length)
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
    """A convolution's kernel of p numbers: inputs [B, c, ...], outputs' gradients [B, o, ...].

    `form`: of b examples of both, the kernels [b, ...]; `bytes_each`: what that lays out for one.
    They are formed in portions, the same each time: what was measured is, to the bit, what is
    summed.
    """

    def __init__(
        self,
        inputs: Tensor,
        outputs: Tensor,
        form: Callable[[Tensor, Tensor], Tensor],
        numbers: int,
        bytes_each: int,
    ) -> None:
        super().__init__(inputs, outputs)
        self.form, self.numbers, self.bytes_each = form, numbers, bytes_each

    def norms(self) -> Tensor:
        norms = self.outputs.new_empty(self.size, dtype=torch.float64)
        for part, kernels in self._portions():
            norms[part] = row_norms(kernels)
        return norms

    def sums(self, weights: Tensor) -> Tensor:
        total = weights.new_zeros(len(weights), self.numbers)
        for part, kernels in self._portions():
            total.addmm_(weights[:, part], kernels)
        return total

    def _portions(self) -> Iterator[tuple[slice, Tensor]]:
        for part in chunks(self.outputs, self.bytes_each):
            yield part, self.form(self.inputs[part], self.outputs[part]).flatten(1)


class EmbeddingFactors(Factored):
    """An Embedding's table [v, d]: words [B, T] (inputs), their gradients [B, T, d] (outputs)."""

    def __init__(self, inputs: Tensor, outputs: Tensor, words: int, padding: int | None) -> None:
        if padding is not None:  # it is never learned
            outputs = outputs.masked_fill((inputs == padding)[..., None], 0.0)
        super().__init__(inputs, outputs)
        self.words = words

    def norms(self) -> Tensor:
        """As in OuterProducts: rows of one word may cancel."""
        size, length, width = self.outputs.shape
        terms = row_norms(self.outputs.flatten(0, 1)).view(size, length).sum(dim=1)
        outputs = self.outputs.double()
        same = self.inputs[:, :, None] == self.inputs[:, None, :]
        squares = ((outputs @ outputs.mT) * same).sum(dim=(1, 2))
        return norm_upper_bound(squares, terms, length, width, self.outputs.dtype)

    def sums(self, weights: Tensor) -> Tensor:
        places, width = self.inputs.flatten(), self.outputs.shape[-1]
        tables = self.outputs.new_zeros(len(weights), self.words, width)
        for table, weighted in zip(tables, self._weighted(weights), strict=True):
            table.index_add_(0, places, weighted.reshape(-1, width))
        return tables.flatten(1)


def _blank(values: Tensor, examples: Tensor) -> Tensor:
    return values.masked_fill(examples.view([-1] + [1] * (values.dim() - 1)), 0.0)


class PerSampleGradients:
    """All parameters' together: what `oso_dp.privacy.mechanism` asks of gradient code, for R = 1.

    `held` by parameter, None for one that no example reached; `sizes`: their numbers p; `dtype`
    and `device`: those of the sums. OsoError if the layers saw different numbers of examples.
    """

    def __init__(
        self,
        held: Sequence[PerSampleGradient | None],
        sizes: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        counts = {one.size for one in held if one is not None}
        if len(counts) > 1:
            raise OsoError(
                f"model: its layers see {' and '.join(map(str, sorted(counts)))} examples of one "
                "batch; row i of each layer's input must be example i's"
            )
        self.held, self.sizes, self.dtype, self.device = held, sizes, dtype, device
        self.size = counts.pop() if counts else 0
        self._norms = self._measured()

    def _measured(self) -> Tensor:
        parts = [one.norms().to(self.device) for one in self.held if one is not None]
        if not parts:
            return torch.zeros(self.size, dtype=self.dtype, device=self.device)
        norms = torch.linalg.vector_norm(torch.stack(parts), dim=0)
        norms = norms.masked_fill(~(norms <= LARGEST_NORM), math.inf)
        unusable = norms == math.inf
        if unusable.any():  # such an example contributes nothing, not even zero times NaN
            for one in self.held:
                if one is not None:
                    one.blank(unusable)
        return norms.to(self.dtype)

    def norms(self) -> Tensor:
        """[1, B]; not finite for an example that must not contribute."""
        return self._norms[None]

    def layer_norms(self) -> Mapping[str, Tensor]:
        raise ValueError("no query of this room is about a group of layers")

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[0, j, i] g_i for weights [1, J, B], as [1, J, P]."""
        (rows,) = weights
        parts = [
            self._zeros(len(rows), size) if one is None else one.sums(rows).to(self.device)
            for one, size in zip(self.held, self.sizes, strict=True)
        ]
        return torch.cat(parts, dim=1)[None]

    def plain_sums(self, present: Tensor) -> Tensor:
        raise ValueError("no query of this room goes without norms")

    def _zeros(self, rows: int, size: int) -> Tensor:
        return torch.zeros(rows, size, dtype=self.dtype, device=self.device)
