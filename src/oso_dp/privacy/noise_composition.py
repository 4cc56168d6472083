"""Composition of several noisy sums of one batch into one Gaussian mechanism.

McMahan et al. 2018 (joint clipping): sums with sensitivities s_j and noise of standard deviations
nu_j s_j, over the same batch, are one Gaussian query with noise multiplier (sum_j nu_j^-2)^(-1/2).
"""

import math

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
