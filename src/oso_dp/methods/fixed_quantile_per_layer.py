"""FixedQuantile with a threshold for each layer (Thakkar et al. 2019, section 2.2).

Each layer's part of the gradient is clipped by itself, and each layer's own share of unclipped
examples moves its threshold. The noise is shared in proportion to the thresholds (McMahan et al.
2018, section 3): all layers together cost what FixedQuantile's two sums do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oso_dp.methods.base import State, gradient_step
from oso_dp.methods.fixed_quantile import FixedQuantile
from oso_dp.privacy.noise_composition import equal_thresholds, layer_groups, proportional_noise
from oso_dp.privacy.queries import ClippedGradient, UnclippedCount

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers


class FixedQuantilePerLayer(FixedQuantile):
    """`threshold`, of a run as of its rows, is the length of the layers' thresholds as a vector.

    So it bounds the whole gradient, as in the methods that clip it as one. At the start all layers
    have the same.
    """

    name = "fixed_quantile_per_layer"
    title = "FixedQuantile, per layer"

    def queries(self, state: State) -> tuple[ClippedGradient | UnclippedCount, ...]:
        groups = layer_groups(state.layers)
        gradient_noise, count_noise = self.split_noise(state.noise_multiplier, state.batch_size)
        thresholds = _thresholds(state).unbind(dim=1)
        gradients = proportional_noise(gradient_noise, len(groups))
        counts = proportional_noise(count_noise, len(groups))
        return (
            *map(ClippedGradient, gradients, thresholds, groups),
            *map(UnclippedCount, counts, thresholds, groups),
        )

    def update(self, state: State, answers: Answers) -> None:
        import torch

        parts = [answers[ClippedGradient, name] for name in state.layers]
        gradient_step(state, torch.cat(parts, dim=1), self.momentum)
        self.adapt_hyperparameters(state, answers)

    def adapt_hyperparameters(self, state: State, answers: Answers) -> None:
        import torch

        votes = torch.stack([answers[UnclippedCount, name] for name in state.layers], dim=1)
        unclipped = votes + 0.5  # b~ of each layer, [R, layers]
        thresholds = self.next_threshold(_thresholds(state), unclipped - state.quantile[:, None])
        state.buffers["thresholds"] = thresholds
        state.buffers["unclipped"] = unclipped.mean(dim=1)
        state.threshold = thresholds.norm(dim=1)


def _thresholds(state: State) -> Tensor:
    """C of each layer, [R, layers]."""
    import torch

    fractions = equal_thresholds(1.0, len(state.layers))
    equal = torch.stack([fraction * state.threshold for fraction in fractions], dim=1)
    return state.buffers.get("thresholds", equal)
