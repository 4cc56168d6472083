"""One run's view of the gradient code, which works on the batches of several."""

import torch
from torch import Tensor

from oso_dp.gradients import GradientEngine


class OneRun:
    """flat [P], inputs [B, ...], targets [B, ...]; all that comes out is without the run axis."""

    def __init__(self, code: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor) -> None:
        self.batch, self.size = code(flat[None], inputs[None], targets[None]), len(inputs)

    def norms(self) -> Tensor:
        return self.batch.norms()[0]

    def layer_norms(self) -> dict[str, Tensor]:
        return {name: norms[0] for name, norms in self.batch.layer_norms().items()}

    def weighted_sums(self, weights: Tensor) -> Tensor:
        return self.batch.weighted_sums(weights[None])[0]

    def plain_sums(self, present: Tensor | None = None) -> Tensor:
        present = torch.ones(self.size, dtype=torch.bool) if present is None else present
        return self.batch.plain_sums(present[None])[0]
