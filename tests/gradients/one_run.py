"""One run's view of the gradient engine, which works on the batches of several."""

import torch
from torch import Tensor

from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, UnclippedCount

BOUND = 1e-5  # by which a contribution may exceed the sensitivity, relatively


class OneRun:
    """flat [P], inputs [B, ...], targets [B, ...]; all that comes out is without the run axis."""

    def __init__(
        self, engine: GradientEngine, flat: Tensor, inputs: Tensor, targets: Tensor
    ) -> None:
        self.batch, self.size = engine(flat[None], inputs[None], targets[None]), len(inputs)

    def norms(self) -> Tensor:
        return self.batch.norms()[0]

    def layer_norms(self) -> dict[str, Tensor]:
        return {name: norms[0] for name, norms in self.batch.layer_norms().items()}

    def weighted_sums(self, weights: Tensor) -> Tensor:
        return self.batch.weighted_sums(weights[None])[0]

    def plain_sums(self, present: Tensor | None = None) -> Tensor:
        present = torch.ones(self.size, dtype=torch.bool) if present is None else present
        return self.batch.plain_sums(present[None])[0]


def check_contributions(batch: BatchGradients, size: int) -> None:
    """Of three runs with thresholds of their own: all clipped, half of them, none."""
    norms, runs = batch.norms(), slice(0, 3)
    exact = batch.weighted_sums(torch.eye(size).expand(3, -1, -1)).double().norm(dim=2)
    torch.testing.assert_close(norms.double(), exact, rtol=BOUND, atol=0.0)
    thresholds = torch.stack([norms[0].min() / 100, norms[1].median(), norms[2].max() * 100])
    for query in (ClippedGradient(1.0, thresholds), ClippedDirection(1.0, thresholds)):
        weights = query.weights(norms, runs)
        lengths = batch.weighted_sums(torch.diag_embed(weights)).double().norm(dim=2)
        sensitivity = torch.as_tensor(query.sensitivity(runs)).expand(3)
        assert (lengths <= sensitivity[:, None].double() * (1 + BOUND)).all()
        # and it is reached: a bound that nothing comes near would not have been tried
        assert (lengths[0] > sensitivity[0] * (1 - BOUND)).all()
    assert UnclippedCount(1.0, thresholds).weights(norms, runs).abs().max() == 0.5
