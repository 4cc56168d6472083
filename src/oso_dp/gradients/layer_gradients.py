"""The interface of the rules for layers (`LayerGradients`), and what they have in common: row
norms, bounds on rounding, and gradients that are held as they are.

A norm that is measured too small lets its example through the clip: sensitivity rests on this file.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

from oso_dp.gradients.structured import Structure

Loss = Callable[[Structure, Tensor], Tensor]  # outputs and targets to one loss per example, [N]
Sums = dict[str, Tensor]


class LayerGradients(Protocol):
    """Per-sample gradients of one layer's parameters, in whatever form is small.

    Of N = R B examples: those of R runs, one run's after the other's.
    """

    def norms(self) -> Tensor:
        """2-norm over all the layer's parameters, float64 [N]."""

    def drop(self, bad: Tensor) -> None:
        """Make the gradients of these examples (bool [N]) zero; they are not finite."""

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        """For weights [R, J, B]: by parameter sum_i weights[r, j, i] g_ri, [R, J, *its shape].

        In the weights' type, whatever the gradients' is. `onto`: what the same layer's rule
        returned for other examples; the sums are added to it, in place, and it is returned.
        """


class MaterializedGradients:
    """Gradients as they are, by the parameter's name, [N, *its shape].

    What is measured is what is summed: the same numbers, whatever rounding made them.
    """

    def __init__(self, gradients: Mapping[str, Tensor]) -> None:
        self.gradients = {  # one of a parameter that is a single number is [N, 1]
            name: gradient if gradient.dim() > 1 else gradient[:, None]
            for name, gradient in gradients.items()
        }

    def norms(self) -> Tensor:
        parts = [row_norms(gradient) for gradient in self.gradients.values()]
        return torch.linalg.vector_norm(torch.stack(parts), dim=0)

    def drop(self, bad: Tensor) -> None:
        self.gradients = {
            name: gradient.masked_fill(bad.view(-1, *[1] * (gradient.dim() - 1)), 0.0)
            for name, gradient in self.gradients.items()
        }

    def weighted_sums(self, weights: Tensor, onto: Sums | None = None) -> Sums:
        totals = {}
        for name, gradient in self.gradients.items():
            rows = gradient.flatten(1).unflatten(0, (len(weights), -1)).to(weights.dtype)
            totals[name] = (weights @ rows).unflatten(2, gradient.shape[1:])
        if onto is None:
            return totals
        for name, sums in totals.items():
            onto[name] += sums
        return onto


# Bytes that are laid out at the same time: on a CPU they stay in the cache.
CHUNK_BYTES = {"cpu": 2**22, "cuda": 2**29}


def chunks(values: Tensor, bytes_each: int) -> Iterator[slice]:
    """Parts of N examples [N, ...] for each of which so many bytes are laid out.

    A power of two, so that 64 examples have no remainder: a product's shape may decide how it is
    rounded, and no example's gradient may depend on how many others there are.
    """
    size = 2 ** max(0, (CHUNK_BYTES[values.device.type] // bytes_each).bit_length() - 1)
    return (slice(start, start + size) for start in range(0, len(values), size))


def is_async_device(values: Tensor) -> bool:
    """Whether the host has to wait for its answer when it asks about them: on an accelerator."""
    return values.device.type != "cpu"


# An example with a gradient, or a factor of one, longer than this contributes nothing: beyond it a
# sum over the batch could overflow before any noise is added.
LARGEST_NORM = 1e18
_SMALL, _LARGE = 1e-12, LARGEST_NORM  # between these, float32 squares lose nothing that matters
# Float32 norms of longer rows come out too small: by 1.5e-5 at twice that, 1 % at ten million.
_MAX_ROW_LENGTH = 2**13


def row_norms(values: Tensor) -> Tensor:
    """2-norm of each row of [B, ...], float64 [B], also where float32 squares leave its range."""
    rows = values.flatten(1)
    if rows.shape[1] > _MAX_ROW_LENGTH:
        parts = [row_norms(part) for part in rows.split(_MAX_ROW_LENGTH, dim=1)]
        return torch.linalg.vector_norm(torch.stack(parts), dim=0)
    if is_async_device(rows):  # float64 costs little there
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    exact = torch.float32 if rows.dtype.itemsize < 4 else None  # squares and sums of short numbers
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=exact).double()
    if norms.numel() == 0 or not rows.shape[1]:
        return norms
    low, high = (end.item() for end in norms.aminmax())
    if not (low > _SMALL and high < _LARGE):  # also where one is no number
        odd = ~((norms > _SMALL) & (norms < _LARGE))
        # Where all are zero, as behind a dead unit, nothing is lost.
        odd &= (rows.amax(dim=1) != 0) | (rows.amin(dim=1) != 0)
        norms[odd] = torch.linalg.vector_norm(rows[odd].double(), dim=1)
    return norms


def outer_product_norms(inputs: Tensor, errors: Tensor) -> Tensor:
    """|e a^T| = |e| |a|, from the factors' norms.

    Infinite where a factor is huge: with a tiny one beside it, their weighted product would be
    rounded as the tiny one is.
    """
    usable = (inputs < LARGEST_NORM) & (errors < LARGEST_NORM)
    return (errors * inputs).masked_fill(~usable, torch.inf)


def norm_upper_bound(
    squares: Tensor, terms: Tensor, length: int, widths: int, sum_type: torch.dtype
) -> Tensor:
    """Never below the norm of what a weighted sum adds for an example, float64 [N].

    For a gradient G that is a sum of T = `length` terms that may cancel. Rounding is relative to S,
    the sum of the terms' norms, and may outgrow G. Hence float64, and bounds on what measuring and
    summing may be off (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.1);
    u is half of a type's `eps`.

    squares: |G|^2 in Gram form, taken in float64 from T^2 products of sums, which have `widths`
    terms together: off by at most (widths + T^2 + 3) u S^2, with float64's u. terms: S, infinite
    where an example is not usable. sum_type: in which the sum is taken, T products and their
    additions: off by at most (T + 1) u S, with the u of that type.
    """
    error = (widths + length**2 + 3) * _unit(torch.float64) * terms**2
    return _with_sum_error((squares.clamp(min=0.0) + error).sqrt(), terms, length, sum_type)


def kernel_norm_upper_bound(
    norms: Tensor, terms: Tensor, length: int, sum_type: torch.dtype
) -> Tensor:
    """The same from the norm of G as a sum of its terms in `sum_type`, off by at most T u S."""
    return _with_sum_error(norms + length * _unit(sum_type) * terms, terms, length, sum_type)


def _with_sum_error(norms: Tensor, terms: Tensor, length: int, sum_type: torch.dtype) -> Tensor:
    norms = norms + (length + 1) * _unit(sum_type) * terms
    return norms.masked_fill(~terms.isfinite(), torch.inf)


def _unit(dtype: torch.dtype) -> float:
    """The largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2
