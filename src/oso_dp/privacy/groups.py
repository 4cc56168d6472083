"""Groups of layers that are clipped apart from each other, and their shares of threshold and noise.

McMahan et al. 2018, sections 2 to 4: the gradient is cut into groups. Each group is clipped to its
own threshold S_g and gets its own noise (separate clipping); within a group, layers may live on
different scales alpha_j (joint clipping). All groups of a step together cost one Gaussian sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oso_dp.errors import OsoError


@dataclass(frozen=True)
class Group:
    """Layers that are clipped as one vector, in this order.

    `scales`: alpha_j > 0 of each layer; the vector that is clipped is (v_1 / alpha_1, ...), and the
    answer is scaled back, so that layer j's noise is alpha_j times as large. None: all 1.
    """

    name: str
    layers: tuple[str, ...]
    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise OsoError(f"group {self.name!r}: must name at least one layer, and each once")
        if self.scales is None:
            return
        if len(self.scales) != len(self.layers):
            raise OsoError(
                f"group {self.name!r}: {len(self.scales)} scales for {len(self.layers)} layers"
            )
        if not all(1e-12 <= scale <= 1e12 for scale in self.scales):
            raise OsoError(f"group {self.name!r}: scales {self.scales} must be 1e-12 to 1e12")

    @property
    def layer_scales(self) -> tuple[float, ...]:
        return self.scales or (1.0,) * len(self.layers)


def equal_thresholds(threshold: float, groups: int) -> list[float]:
    """S_g = S / sqrt(G): together, G groups are as long as one vector of norm S."""
    return [threshold / math.sqrt(groups)] * groups


def dimension_adjusted_thresholds(threshold: float, sizes: Sequence[int]) -> list[float]:
    """S_g = S sqrt(d_g / D): by the groups' numbers of parameters d_g, D in all."""
    return [threshold * math.sqrt(size / sum(sizes)) for size in sizes]


def proportional_noise(noise_multiplier: float, groups: int) -> list[float]:
    """nu_g = nu sqrt(G): noise in proportion to S_g; together the groups cost nu."""
    return [noise_multiplier * math.sqrt(groups)] * groups


def dimension_adjusted_noise(noise_multiplier: float, sizes: Sequence[int]) -> list[float]:
    """nu_g = nu sqrt(D / d_g): noise in proportion to a coordinate's largest mean square."""
    return [noise_multiplier * math.sqrt(sum(sizes) / size) for size in sizes]
