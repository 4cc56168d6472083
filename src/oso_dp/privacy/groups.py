"""Layer groups for per-layer (separate) clipping, with their thresholds and noise multipliers.

McMahan et al. 2018, sections 2 to 4: each group of layers is clipped to a threshold S_g and gets
separate noise. All groups of a step together cost one Gaussian sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oso_dp.errors import OsoError


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
