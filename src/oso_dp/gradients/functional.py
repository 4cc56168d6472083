"""Any layer that treats examples independently: per-example gradients by torch.func.

Holds all per-example gradients of the one layer, so it is the rule of last resort.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from oso_dp.gradients.rules import Sums, row_norms


class FunctionalGradients:
    """inputs [R B, ...], output gradients [R B, ...].

    parameters: the layer's own by name, [R, ...]; fixed: those of layers inside it, likewise.
    """

    def __init__(
        self,
        layer: nn.Module,
        inputs: Tensor,
        output_gradients: Tensor,
        parameters: Mapping[str, Tensor],
        fixed: Mapping[str, Tensor],
    ) -> None:
        runs = len(next(iter(parameters.values())))

        def per_example(run: int, inputs: Tensor, output_gradients: Tensor) -> dict[str, Tensor]:
            inside = {name: values[run] for name, values in fixed.items()}

            def pull_back(example: Tensor, output_gradient: Tensor) -> dict[str, Tensor]:
                def output(parameters: dict[str, Tensor]) -> Tensor:
                    batch_of_one = (example[None],)
                    everything = {**inside, **parameters}
                    return torch.func.functional_call(layer, everything, batch_of_one)[0]

                own = {name: values[run] for name, values in parameters.items()}
                return torch.func.vjp(output, own)[1](output_gradient)[0]

            return torch.func.vmap(pull_back)(inputs, output_gradients)

        parts = zip(inputs.chunk(runs), output_gradients.chunk(runs), strict=True)
        by_run = [per_example(run, *part) for run, part in enumerate(parts)]
        self.gradients = {name: torch.cat([run[name] for run in by_run]) for name in parameters}

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
            name: (weights @ gradient.flatten(1).unflatten(0, (runs, -1))).unflatten(
                2, gradient.shape[1:]
            )
            for name, gradient in self.gradients.items()
        }
        if onto is None:
            return totals
        for name, sums in totals.items():
            onto[name] += sums
        return onto
