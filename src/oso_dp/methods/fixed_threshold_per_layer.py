"""FixedThreshold by layers (McMahan et al. 2018): a threshold for each, or one for scaled layers.

Its `threshold` is S, which bounds the whole gradient, under `joint` the scaled one:

- `equal`: layer g is clipped to S / sqrt(G), with noise in proportion (sections 2 and 3).
- `dimension`: to S sqrt(d_g / D), by the number of its parameters, with noise in proportion.
- `dimension_noise`: to S / sqrt(G), with noise by the number of parameters.
- `joint`: each layer is divided by alpha_g = sqrt(d_g G / D), the concatenation is clipped to S,
  and the noisy mean is multiplied back (joint clipping, section 4). The noise of layer g is
  alpha_g times as large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from oso_dp.methods.base import MethodOptions, State, gradient_step, option
from oso_dp.methods.fixed_threshold import FixedThreshold
from oso_dp.privacy.noise_composition import (
    LayerGroup,
    dimension_adjusted_noise,
    dimension_adjusted_thresholds,
    equal_thresholds,
    layer_groups,
    proportional_noise,
)
from oso_dp.privacy.queries import ClippedGradient

if TYPE_CHECKING:
    from torch import Tensor

    from oso_dp.privacy.queries import Answers

_ALL = "all"


@dataclass(frozen=True)
class FixedThresholdPerLayerOptions(MethodOptions):
    allocation: Literal["equal", "dimension", "dimension_noise", "joint"] = option("equal")


class FixedThresholdPerLayer(FixedThreshold):
    name = "fixed_threshold_per_layer"
    title = "FixedThreshold, per layer"
    Options = FixedThresholdPerLayerOptions

    def queries(self, state: State) -> tuple[Any, ...]:
        nu, threshold = state.noise_multiplier, state.threshold
        groups, sizes = layer_groups(state.layers), [*state.layers.values()]
        if self.options.allocation == "joint":
            group = LayerGroup(_ALL, tuple(state.layers), _scales(sizes))
            return (ClippedGradient(nu, threshold, group),)
        by_size = self.options.allocation == "dimension"
        shares = (
            dimension_adjusted_thresholds(1.0, sizes)
            if by_size
            else equal_thresholds(1.0, len(sizes))
        )
        noise = (
            dimension_adjusted_noise(nu, sizes)
            if self.options.allocation == "dimension_noise"
            else proportional_noise(nu, len(sizes))
        )
        thresholds = [share * threshold for share in shares]
        return tuple(map(ClippedGradient, noise, thresholds, groups))

    def update(self, state: State, answers: Answers) -> None:
        import torch

        if self.options.allocation == "joint":
            gradient = _scaled_back(state, answers[ClippedGradient, _ALL])
        else:
            gradient = torch.cat([answers[ClippedGradient, name] for name in state.layers], dim=1)
        gradient_step(state, gradient, self.momentum)


def _scales(sizes: list[int]) -> tuple[float, ...]:
    """alpha_g, whose squares have the mean 1."""
    return tuple(dimension_adjusted_thresholds(len(sizes) ** 0.5, sizes))


def _scaled_back(state: State, answer: Tensor) -> Tensor:
    """The mean of the layers, from that of the layers over their scales, [R, P]."""
    import torch

    sizes = [*state.layers.values()]
    parts = zip(answer.split(sizes, dim=1), _scales(sizes), strict=True)
    return torch.cat([scale * part for part, scale in parts], dim=1)
