"""Any layer that treats examples independently: per-example gradients by torch.func.

Holds all per-example gradients of the one layer, so it is the rule of last resort.
"""

import torch
from torch import Tensor, nn

from oso.training.gradients.rules import row_norms


class FunctionalGradients:
    """inputs [B, ...], output gradients [B, ...]."""

    def __init__(self, layer: nn.Module, inputs: Tensor, output_gradients: Tensor) -> None:
        parameters = {
            name: parameter.detach() for name, parameter in layer.named_parameters(recurse=False)
        }

        def pull_back(example: Tensor, output_gradient: Tensor) -> dict[str, Tensor]:
            def output(parameters: dict[str, Tensor]) -> Tensor:
                batch_of_one = (example[None],)
                return torch.func.functional_call(layer, parameters, batch_of_one)[0]

            return torch.func.vjp(output, parameters)[1](output_gradient)[0]

        self.gradients = torch.func.vmap(pull_back)(inputs, output_gradients)

    def norms(self) -> Tensor:
        each = [row_norms(gradient) for gradient in self.gradients.values()]
        return torch.linalg.vector_norm(torch.stack(each), dim=0)

    def drop(self, bad: Tensor) -> None:
        self.gradients = {
            name: gradient.masked_fill(bad.view(-1, *[1] * (gradient.dim() - 1)), 0.0)
            for name, gradient in self.gradients.items()
        }

    def weighted_sums(self, weights: Tensor) -> dict[str, Tensor]:
        return {
            name: torch.tensordot(weights, gradient, dims=1)
            for name, gradient in self.gradients.items()
        }
