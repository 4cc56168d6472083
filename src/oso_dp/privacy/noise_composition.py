"""Composition of several noisy sums of one batch into one Gaussian mechanism.

McMahan et al. 2018 (joint clipping): sums with sensitivities s_j and noise of standard deviations
nu_j s_j, over the same batch, are one Gaussian query with noise multiplier (sum_j nu_j^-2)^(-1/2).
For per-layer clipping (sections 2 to 4), each group of layers is clipped to a threshold S_g and has
separate noise; all groups of a step together cost one Gaussian sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oso_dp.errors import OsoError


def combined_noise_multiplier(noise_multipliers: list[float]) -> float:
    """The noise multiplier of one Gaussian sum with the same cost; 0 if one of them is 0."""
    if min(noise_multipliers) <= 0:
        return 0.0
    return math.fsum(nu**-2 for nu in noise_multipliers) ** -0.5


def gradient_noise_multiplier(noise_multiplier: float, query_noise_multiplier: float) -> float:
    """nu_g such that nu_g and nu_q together cost nu (Galli et al., Proposition 1).

    Raises OsoError unless nu_q > nu: otherwise the second query alone exceeds the budget.
    """
    if not query_noise_multiplier > noise_multiplier:
        raise OsoError(
            f"query_noise_multiplier: {query_noise_multiplier:g}; must be > the step's noise "
            f"multiplier {noise_multiplier:g}, to leave budget for the gradient"
        )
    return (noise_multiplier**-2 - query_noise_multiplier**-2) ** -0.5


@dataclass(frozen=True)
class LayerGroup:
    """Layers that are clipped as one vector, in this order."""

    name: str
    layers: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise OsoError(f"group {self.name!r}: must have at least one layer, and no layer twice")


def equal_thresholds(threshold: float, groups: int) -> list[float]:
    """S_g = S / sqrt(G): G groups of these norms form a vector of norm S."""
    return [threshold / math.sqrt(groups)] * groups


def proportional_noise(noise_multiplier: float, groups: int) -> list[float]:
    """nu_g = nu sqrt(G): noise proportional to S_g; together, the groups cost nu."""
    return [noise_multiplier * math.sqrt(groups)] * groups
