"""Composition of several noisy sums of one batch into one Gaussian mechanism.

McMahan et al. 2018 (joint clipping): sums with sensitivities s_j and noise of standard deviations
nu_j s_j, over the same batch, are one Gaussian query with noise multiplier (sum_j nu_j^-2)^(-1/2).
For per-layer clipping (sections 2 to 4), each group of layers is clipped to a threshold S_g and has
separate noise; all groups of a step together cost one Gaussian sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oso_dp.errors import OsoError
from oso_dp.value_checks import check_number

# Of one sum. Beyond, an accountant may be wrong; 0 is no noise.
MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 1e-6, 1e9


def check_noise_multiplier(name: str, nu: float) -> None:
    """OsoError for a sum's noise multiplier that no ledger may have, except for a tiny one."""
    check_number(name, nu, ge=0, le=MAX_NOISE_MULTIPLIER)


def combined_noise_multiplier(noise_multipliers: list[float]) -> float:
    """The noise multiplier of one Gaussian sum with the same cost; 0 if one of them is 0."""
    if min(noise_multipliers) <= 0:
        return 0.0
    return math.fsum(nu**-2 for nu in noise_multipliers) ** -0.5


def gradient_noise_multiplier(noise_multiplier: float, query_noise_multiplier: float) -> float:
    """nu_g such that nu_g and nu_q together cost nu (Galli et al., Proposition 1).

    Raises OsoError unless nu_q > nu: otherwise the second query alone exceeds the budget.
    """
    check_noise_multiplier("query_noise_multiplier", query_noise_multiplier)
    if not query_noise_multiplier > noise_multiplier:
        raise OsoError(
            f"query_noise_multiplier: {query_noise_multiplier:g}; must be > the step's noise "
            f"multiplier {noise_multiplier:g}, to leave budget for the gradient"
        )
    return (noise_multiplier**-2 - query_noise_multiplier**-2) ** -0.5


_MIN_SCALE, _MAX_SCALE = 1e-6, 1e6


@dataclass(frozen=True)
class LayerGroup:
    """Layers that are clipped as one vector, in this order.

    `scales`: alpha of each layer (joint clipping); what is clipped, summed and released is the
    vector of the layers' gradients over their scales. None: all 1.
    """

    name: str
    layers: tuple[str, ...]
    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise OsoError(f"group {self.name!r}: must have at least one layer, and no layer twice")
        if self.scales is None:
            return
        in_range = all(_MIN_SCALE <= scale <= _MAX_SCALE for scale in self.scales)
        if len(self.scales) != len(self.layers) or not in_range:
            raise OsoError(
                f"group {self.name!r}: scales {self.scales}; must be one for each layer, "
                f">= {_MIN_SCALE:g} and <= {_MAX_SCALE:g}"
            )


def layer_groups(layers: Iterable[str]) -> list[LayerGroup]:
    """A group for each layer; OsoError if there is none."""
    groups = [LayerGroup(name, (name,)) for name in layers]
    if not groups:
        raise OsoError("layers: none; the state must have the sizes of all layers")
    return groups


def equal_thresholds(threshold: float, groups: int) -> list[float]:
    """S_g = S / sqrt(G): G groups of these norms form a vector of norm S."""
    return [threshold / math.sqrt(groups)] * groups


def dimension_adjusted_thresholds(threshold: float, sizes: Sequence[int]) -> list[float]:
    """S_g = S sqrt(d_g / D), by the groups' numbers of parameters d_g, of D in all."""
    return [threshold * math.sqrt(size / sum(sizes)) for size in sizes]


def proportional_noise(noise_multiplier: float, groups: int) -> list[float]:
    """nu_g = nu sqrt(G): noise proportional to S_g; together, the groups cost nu."""
    return [noise_multiplier * math.sqrt(groups)] * groups


def dimension_adjusted_noise(noise_multiplier: float, sizes: Sequence[int]) -> list[float]:
    """nu_g = nu sqrt(D / d_g), which suits equal S_g; together, the groups cost nu."""
    return [noise_multiplier * math.sqrt(sum(sizes) / size) for size in sizes]
