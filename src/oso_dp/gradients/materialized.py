"""Per-example gradients that are held as they are, parameter by parameter.

What is measured is what is summed: the very same numbers, whatever rounding made them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from oso_dp.gradients.protocol import Sums, row_norms


class MaterializedGradients:
    """gradients: by the parameter's name, [N, *its shape]."""

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
        runs = len(weights)
        totals = {
            name: (
                weights @ gradient.flatten(1).unflatten(0, (runs, -1)).to(weights.dtype)
            ).unflatten(2, gradient.shape[1:])
            for name, gradient in self.gradients.items()
        }
        if onto is None:
            return totals
        for name, sums in totals.items():
            onto[name] += sums
        return onto
