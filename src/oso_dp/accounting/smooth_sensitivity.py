"""PATE's data-dependent privacy, made publishable: its smooth sensitivity, and noise to match.

The data-dependent RDP of noisy votes is a function of private data. It may be published with
Gaussian noise whose standard deviation is a multiple of its smooth sensitivity (Nissim et al.
2007; for PATE, Papernot et al. 2018, section 4.3).

One example changes one vote of each query. This moves z = -Phi^-1(q / (classes - 1)) of an answer
by at most sqrt(2) / noise, where q bounds the probability of another winner, since
u -> Phi(Phi^-1(u) + c) is concave for c > 0; and z = (largest count - threshold) / noise of a
comparison by at most 1 / noise. So the local sensitivities at each distance are the largest drops
of a function of z over windows of z, which a grid bounds from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri_exp

from oso_dp.accounting.pate import (
    Array,
    check_votes,
    epsilon_of_rdp,
    gaussian_plan_rdp,
    gaussian_rdp,
    log_another_winner,
)
from oso_dp.errors import OsoError

if TYPE_CHECKING:
    from oso_dp.privacy.votes import GaussianPlan

Cost = Callable[[Array], Array]  # of z

_CELLS = 64  # of the grid, for each vote


def compute_smooth_sensitivity(
    votes: npt.NDArray,
    answered: npt.NDArray[np.bool_],
    plan: GaussianPlan,
    order: float,
    beta: float,
) -> float:
    """An upper bound on the beta-smooth sensitivity of the RDP of all queries at this order.

    The largest e^(-beta d) times the local sensitivity at data sets that differ in d examples.
    """
    counts = check_votes(votes)
    teachers = int(counts[0].sum()) if len(counts) else 0
    total = np.zeros(teachers + 1)
    if answered.any():
        total += _bound_answers(counts[answered], plan.answer_noise, order, teachers)
    if plan.threshold is not None and plan.selection_noise is not None:
        total += _bound_comparisons(counts, plan.threshold, plan.selection_noise, order, teachers)
    return float(np.max(np.exp(-beta * np.arange(teachers + 1)) * total))


def _bound_answers(counts: Array, noise: float, order: float, teachers: int) -> Array:
    others = counts.shape[1] - 1
    step = math.sqrt(2) / noise
    log_q = log_another_winner(counts, noise)
    places: Array = -ndtri_exp(np.minimum(log_q - math.log(others), math.log(0.5)))

    def cost(z: Array) -> Array:
        log_q = np.minimum(math.log(others) + log_ndtr(-z), 0.0)
        return gaussian_rdp(log_q, noise, np.array([order]))[:, 0]

    return _sum_local_sensitivities(places, step, cost, teachers, (0.0, teachers * step / 2))


def _bound_comparisons(
    counts: Array, threshold: float, noise: float, order: float, teachers: int
) -> Array:
    def cost(z: Array) -> Array:
        return gaussian_rdp(log_ndtr(-np.abs(z)), math.sqrt(2) * noise, np.array([order]))[:, 0]

    # The largest count is at least that of an even vote.
    least = -(-teachers // counts.shape[1])
    ends = ((least - threshold) / noise, (teachers - threshold) / noise)
    places: Array = (counts.max(axis=1) - threshold) / noise
    return _sum_local_sensitivities(np.asarray(places), 1 / noise, cost, teachers, ends)


def _sum_local_sensitivities(
    places: Array, step: float, cost: Cost, teachers: int, ends: tuple[float, float]
) -> Array:
    """The sum of the queries' local sensitivities within distance d = 0, ..., teachers.

    ends: of the places that votes can have. At d = teachers each window covers them, so that all
    data sets have the same sum there, and the smooth sensitivity needs no larger d. OsoError if
    the cost does not fall with the distance from 0, on which the grid's bound rests.
    """
    cell = step / _CELLS
    first, last = math.floor(ends[0] / cell), math.floor(ends[1] / cell)
    numbers = np.arange(first, last + _CELLS + 2)
    values = cost((numbers * cell).astype(np.float64))
    inside, outside = (numbers <= 0).nonzero()[0], (numbers >= 0).nonzero()[0]
    if (np.diff(values[inside]) < -1e-12).any() or (np.diff(values[outside]) > 1e-12).any():
        raise OsoError("order: the cost does not fall with agreement at this order and noise")
    high = np.maximum(values[:-1], values[1:])
    low = np.minimum(values[:-1], values[1:])
    # Of a vote that moves z from a cell to the one `step` above it.
    drops = np.maximum(high[:-_CELLS] - low[_CELLS:], high[_CELLS:] - low[:-_CELLS])
    distances = np.arange(teachers + 1) * _CELLS
    total = np.zeros(teachers + 1)
    for place in np.clip(np.floor(places / cell).astype(np.int64) - first, 0, len(drops) - 1):
        # From what is at most d + 1 votes below to what is at most d above, within the ends.
        down = np.maximum.accumulate(drops[place::-1])
        up = np.maximum.accumulate(drops[place:])
        below = down[np.minimum(distances + _CELLS, len(down) - 1)]
        total += np.maximum(below, up[np.minimum(distances, len(up) - 1)])
    return total


def compute_release_rdp(order: float, beta: float, noise: float) -> float:
    """RDP at this order of a value with Gaussian noise of `noise` times its smooth sensitivity.

    An upper bound on the Rényi divergence of two Gaussians whose standard deviations differ by a
    factor of at most e^beta, and whose means by at most the smaller smooth sensitivity. OsoError
    where it is not finite.
    """
    if not (beta > 0 and order > 1 and noise > 0):
        raise OsoError(f"order {order:g}, beta {beta:g}, noise {noise:g}; must be > 1, > 0 and > 0")
    narrow, wide = math.exp(-2 * beta), math.exp(2 * beta)
    spread = 1 + order * (narrow - 1)
    if spread <= 0:
        raise OsoError(
            f"order: {order:g}; must be < {1 / -math.expm1(-2 * beta):.4g} for beta {beta:g}"
        )

    def of_spreads(ratio: float, mixed: float) -> float:
        return math.log(ratio) / 2 + math.log(ratio / mixed) / (2 * (order - 1))

    to_narrow = of_spreads(narrow, spread) + order * narrow / (2 * noise**2 * spread)
    to_wide = of_spreads(wide, 1 + order * (wide - 1)) + order / (2 * noise**2)
    return max(to_narrow, to_wide)


@dataclass(frozen=True)
class SanitizedCost:
    """The sanitized epsilon before its noise is added; both fields are functions of private data.

    Publish only the RDP at the order plus a Gaussian number of this deviation, and its release.

    Attributes:
        epsilon: of the RDP at the order, without noise, and of its release.
        deviation: the standard deviation of the noise that its RDP needs.
    """

    epsilon: float
    deviation: float


def compute_sanitized_cost(
    votes: npt.NDArray,
    answered: npt.NDArray[np.bool_],
    plan: GaussianPlan,
    delta: float,
    order: float = 8,
    beta: float = 0.02,
    noise: float = 4,
) -> SanitizedCost:
    """The expectation and deviation of the sanitized epsilon at delta; a function of the votes.

    Args:
        votes: [queries, classes].
        answered: which queries were answered, [queries].
        plan: of the votes.
        delta: of the guarantee.
        order: of the RDP, fixed without the votes, as are the next two.
        beta: of the smooth sensitivity.
        noise: in units of the smooth sensitivity. The defaults had the smallest sum of the cost and
            two deviations, of a few, on the votes that Papernot et al. published.
    """
    orders = np.array([float(order)])
    spent = gaussian_plan_rdp(votes, answered, plan, orders)
    total = spent + compute_release_rdp(order, beta, noise)
    sensitivity = compute_smooth_sensitivity(votes, answered, plan, order, beta)
    return SanitizedCost(epsilon_of_rdp(total, delta, orders), sensitivity * noise)
