"""Norms that are never below what is summed, where a gradient is a sum of terms that may cancel.

Rounding is relative to S, the sum of the terms' norms, and then outgrows the gradient G itself: an
example whose norm is measured too small passes the clip. Hence float64, and bounds on what
measuring and summing may be off (Higham 2002, "Accuracy and Stability of Numerical Algorithms",
section 3.1). u below is half of a type's `eps`.
"""

import torch
from torch import Tensor

from oso_dp.gradients.protocol import LARGEST_NORM


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

    squares: |G|^2 in Gram form, taken in float64 from T^2 = length^2 products of sums, which have
    `widths` terms together: off by at most (widths + T^2 + 3) u S^2, with float64's u. terms: S,
    infinite where an example is not usable. sum_type: in which the sum is taken, T products and
    their additions: off by at most (T + 1) u S, with the u of that type.
    """
    measured = (widths + length**2 + 3) * _unit(torch.float64) * terms**2
    norms = (squares.clamp(min=0.0) + measured).sqrt() + (length + 1) * _unit(sum_type) * terms
    return norms.masked_fill(~terms.isfinite(), torch.inf)


def _unit(dtype: torch.dtype) -> float:
    """The largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2
