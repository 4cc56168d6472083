"""Groups of layers that are clipped apart from each other, and their shares of threshold and noise.

McMahan et al. 2018, sections 2 to 4: the gradient is cut into groups. Each group is clipped to its
own threshold S_g and gets its own noise (separate clipping). All groups of a step together cost one
Gaussian sum.
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
            raise OsoError(f"group {self.name!r}: must name at least one layer, and each once")


def equal_thresholds(threshold: float, groups: int) -> list[float]:
    """S_g = S / sqrt(G): together, G groups are as long as one vector of norm S."""
    return [threshold / math.sqrt(groups)] * groups


def proportional_noise(noise_multiplier: float, groups: int) -> list[float]:
    """nu_g = nu sqrt(G): noise in proportion to S_g; together the groups cost nu."""
    return [noise_multiplier * math.sqrt(groups)] * groups
