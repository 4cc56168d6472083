"""Data-dependent privacy of PATE's noisy votes, from the votes of the teachers.

K teachers, each trained on a part of the data of its own, vote on each query; one example changes
one vote, which moves two counts by 1. Where the teachers agree, the noisy winner hardly depends on
one vote, so the cost of a query is far below its worst case.

- LNMax (Papernot et al. 2017): the largest count with Laplace noise; log moments by Theorem 3.
- GNMax and Confident-GNMax (Papernot et al. 2018): with Gaussian noise, asked only where a noisy
  largest count exceeds a threshold; Rényi differential privacy by Theorem 6 with Propositions 7
  and 10.

A data-dependent epsilon is itself a function of private data: publish it only of public data, or
sanitized. Votes are whole counts, [queries, classes].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from oso_dp.accounting.accountants import (
    MAX_EPSILON,
    check_delta,
    compute_epsilon,
    suppress_rdp_warnings,
)
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.value_checks import check_number

if TYPE_CHECKING:
    from oso_dp.privacy.votes import GaussianPlan, StablePlan, VotePlan

_MOST_NOISE = 1e6
AnyPlan = TypeVar("AnyPlan", bound="VotePlan")
Array = npt.NDArray[np.float64]

ORDERS: Array = np.concatenate([np.arange(2, 100, 0.5), np.geomspace(100, 500, 60)])
MOMENTS: Array = np.arange(1.0, 9.0)  # of LNMax; the paper's


def check_votes(votes: npt.NDArray) -> Array:
    """The votes as numbers; OsoError unless each query has equally many whole votes."""
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iuf":
        raise OsoError(
            f"votes: {counts.dtype} {list(counts.shape)}; must be numbers [queries, classes], with "
            "two classes or more"
        )
    exact = counts.astype(np.float64)
    if not (np.isfinite(exact).all() and (exact >= 0).all() and (exact == exact.round()).all()):
        raise OsoError("votes: must be whole numbers >= 0: counts of teachers, no probabilities")
    if len(exact) and not (exact.sum(axis=1) == exact[0].sum()).all():
        raise OsoError("votes: rows have different sums; each must be the number of teachers")
    return exact


def laplace_moments(votes: npt.NDArray, scale: float) -> Array:
    """Log moments of LNMax with noise of this scale, of each query: [queries, moments]."""
    check_number("scale", scale, gt=0)
    gamma, gaps = 1 / scale, _gaps(check_votes(votes))
    worst = 2 * gamma**2 * MOMENTS * (MOMENTS + 1)
    log_q = logsumexp(-gamma * gaps + np.log(2 + gamma * gaps) - math.log(4), axis=1)[:, None]
    # Theorem 3 holds below this q.
    fits = log_q < -np.logaddexp(2 * gamma, 0)
    q = np.exp(np.where(fits, log_q, -math.inf))
    stays = np.log1p(-q) + MOMENTS * (np.log1p(-q) - np.log1p(-np.exp(2 * gamma) * q))
    moves = np.where(fits, log_q, -math.inf) + 2 * gamma * MOMENTS
    found = np.where(fits, np.logaddexp(stays, moves), math.inf)
    return np.asarray(np.minimum(found, worst))


def laplace_epsilon(moments_sum: Array, delta: float) -> float:
    """Epsilon at delta of queries whose log moments add up to these."""
    check_delta(delta)
    return float(np.min((moments_sum + math.log(1 / delta)) / MOMENTS))


def argmax_rdp(votes: npt.NDArray, noise: float, orders: Array = ORDERS) -> Array:
    """RDP of GNMax with noise of this deviation, of each query: [queries, orders]."""
    check_number("noise", noise, gt=0)
    return gaussian_rdp(log_another_winner(votes, noise), noise, orders)


def log_another_winner(votes: npt.NDArray, noise: float) -> Array:
    """The logarithm of a bound on the probability that GNMax answers another class than the first.

    Proposition 7: a union bound over the others.
    """
    gaps = _gaps(check_votes(votes))
    return np.asarray(logsumexp(log_ndtr(-gaps / (math.sqrt(2) * noise)), axis=1))


def threshold_rdp(
    votes: npt.NDArray, threshold: float, noise: float, orders: Array = ORDERS
) -> Array:
    """RDP of whether the largest count with noise reaches the threshold, of each query.

    One example moves the largest count by 1, where it moves two counts of GNMax: so the noise
    counts sqrt(2) times.
    """
    check_number("noise", noise, gt=0)
    log_p = log_answered(votes, threshold, noise)
    log_q = np.minimum(log_p, log_answered_not(votes, threshold, noise))
    return gaussian_rdp(log_q, math.sqrt(2) * noise, orders)


def log_answered(votes: npt.NDArray, threshold: float, noise: float) -> Array:
    """The logarithm of the probability that each query is answered."""
    largest = check_votes(votes).max(axis=1)
    return np.asarray(log_ndtr((largest - threshold) / noise))


def log_answered_not(votes: npt.NDArray, threshold: float, noise: float) -> Array:
    """The logarithm of the probability that each query is not answered."""
    largest = check_votes(votes).max(axis=1)
    return np.asarray(log_ndtr((threshold - largest) / noise))


def gaussian_rdp(log_q: Array, noise: float, orders: Array = ORDERS) -> Array:
    """Theorem 6 with the orders of Proposition 10, or the worst case: [queries, orders].

    log_q: the logarithm of a bound on the probability of another outcome than the likeliest, of
    each query. The worst case is orders / noise^2.
    """
    worst = orders / noise**2
    log_q = np.asarray(log_q, dtype=np.float64)[:, None]
    usable = log_q < 0
    log_q = np.where(usable, np.maximum(log_q, -1e6), -1.0)
    mu2 = noise * np.sqrt(-log_q)
    mu1 = mu2 + 1
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        epsilon1, epsilon2 = mu1 / noise**2, mu2 / noise**2
        limit = (mu2 - 1) * epsilon2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        fits = usable & (mu2 > 1) & (log_q <= limit) & (log_q + epsilon2 < 0) & (orders <= mu1)
        stays = np.log1p(-np.exp(log_q))
        log_a = stays - np.log1p(-np.exp((log_q + epsilon2) * (1 - 1 / mu2)))
        log_b = epsilon1 - log_q / (mu1 - 1)
        total = np.logaddexp(stays + (orders - 1) * log_a, log_q + (orders - 1) * log_b)
        found = np.where(fits, total / (orders - 1), math.inf)
    return np.asarray(np.fmin(np.maximum(found, 0.0), worst))


def epsilon_of_rdp(rdp: Array, delta: float, orders: Array = ORDERS) -> float:
    """Epsilon at delta of queries whose RDP adds up to this (the conversion of dp_accounting)."""
    from oso_dp.privacy.dp_events import compute_epsilon

    check_delta(delta)
    with suppress_rdp_warnings():
        return float(compute_epsilon(list(orders), rdp, delta)[0])


def compute_data_dependent_epsilon(
    votes: npt.NDArray, answered: npt.NDArray[np.bool_], plan: VotePlan, delta: float
) -> float | None:
    """Epsilon at delta of every comparison, and of the queries that were answered, from the votes.

    None for a plan whose costs do not depend on the votes.
    """
    from oso_dp.privacy.votes import GaussianPlan, LaplacePlan  # they load torch

    if isinstance(plan, LaplacePlan):
        return laplace_epsilon(laplace_moments(votes, plan.scale).sum(axis=0), delta)
    if not isinstance(plan, GaussianPlan):
        return None
    return epsilon_of_rdp(gaussian_plan_rdp(votes, answered, plan), delta)


def gaussian_plan_rdp(
    votes: npt.NDArray,
    answered: npt.NDArray[np.bool_],
    plan: GaussianPlan,
    orders: Array = ORDERS,
) -> Array:
    """RDP of every comparison, and of the queries that were answered: [orders]."""
    rdp = argmax_rdp(votes[answered], plan.answer_noise, orders).sum(axis=0)
    if plan.threshold is not None and plan.selection_noise is not None:
        compared = threshold_rdp(votes, plan.threshold, plan.selection_noise, orders)
        rdp = rdp + compared.sum(axis=0)
    return np.asarray(rdp)


def calibrate(make: Callable[[float], AnyPlan], epsilon: float, delta: float) -> AnyPlan:
    """Of the plans that `make` makes, the one with the least noise of epsilon at most this."""
    check_delta(delta)
    check_number("epsilon", epsilon, gt=0)
    low, high = 1e-3, _MOST_NOISE
    make(high)  # checks the options
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        fits = compute_epsilon([make(middle).ledger], delta) <= epsilon
        low, high = (low, middle) if fits else (middle, high)
    found = make(high)
    if compute_epsilon([found.ledger], delta) > epsilon * (1 + ROUNDING):
        raise OsoError(f"epsilon: {epsilon:g}; no noise up to {_MOST_NOISE:g} reaches it")
    return found


def calibrate_stable(queries: int, unstable: int, epsilon: float, delta: float) -> StablePlan:
    """The plan with the least noise whose epsilon at delta is at most this.

    Half of delta covers that a query is answered although one example decides it.
    """
    from oso_dp.privacy.votes import StablePlan  # it loads torch

    check_delta(delta)
    if not 0 < epsilon <= MAX_EPSILON:
        raise OsoError(f"epsilon: {epsilon!r}; must be > 0 and <= {MAX_EPSILON:g}")
    failure = delta / 2 / (1 + math.exp(epsilon))

    def make(noise: float) -> StablePlan:
        margin = 2 * noise * math.log(max(1.0, 2 / 3 * queries * unstable / failure))
        return StablePlan(queries, unstable, noise, margin)

    return calibrate(make, epsilon, delta)


def _gaps(votes: Array) -> Array:
    """By how much the largest count exceeds each other one, [queries, classes - 1]."""
    ascending = np.sort(votes, axis=1)
    return np.asarray(ascending[:, -1:] - ascending[:, :-1])
