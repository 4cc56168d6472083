"""Which way to spend a budget did best on data like somebody's; nothing where none is like them.

A data set is like theirs if it has about as many examples, its network about as many parameters,
and the budget lies between those that were measured. Of the ways that were measured on all such
data sets, with three seeds or more, the one is taken whose gain over Online's searched grid is the
surest: the lower end of its 95 % interval, on the data set where that is least, is the highest; in
units of the difference that matters there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oso_dp.choosing.known import Measured
from oso_dp.errors import OsoError

LIKE = {"examples": 3.0, "parameters": 10.0}  # by which factor they may differ
SEEDS = 3


@dataclass(frozen=True)
class Recommendation:
    """A way, and what it rests on: a line for each data set that is like the asker's."""

    rests_on: tuple[Measured, ...]

    @property
    def way(self) -> Measured:
        """Any of them: which way it is stands in each."""
        return self.rests_on[0]

    @property
    def least_gain(self) -> float:
        """The lower end of the gain's interval in margins, where it is least."""
        return min(map(_surely, self.rests_on))


def recommend(
    every: Sequence[Measured], examples: int, parameters: int, epsilon: float
) -> Recommendation:
    """OsoError, "not measured", where no data set is like these, or no way was run often enough."""
    asked = {"examples": examples, "parameters": parameters}
    near = [
        one
        for one in every
        if all(_near(getattr(one, key), value, LIKE[key]) for key, value in asked.items())
    ]
    if not near:
        known = sorted({(one.dataset, one.examples, one.parameters) for one in every})
        there = "; ".join(f"{name}: {n:,} examples, {p:,} parameters" for name, n, p in known)
        raise OsoError(
            f"not measured: {examples:,} examples and a model of {parameters:,} parameters; "
            f"measured are {there or 'none'} (and up to {LIKE['examples']:g} and "
            f"{LIKE['parameters']:g} times as many, or as few)"
        )
    here = [one for one in near if _between(near, one.dataset, epsilon)]
    if not here:
        budgets: dict[str, list[float]] = {}
        for one in near:
            budgets.setdefault(one.dataset, []).append(one.epsilon)
        there = "; ".join(f"{name}: {min(of):g} to {max(of):g}" for name, of in budgets.items())
        raise OsoError(
            f"not measured: epsilon {epsilon:g} on data like these; measured are {there}"
        )
    here = [one for one in here if one.epsilon == _nearest(here, one.dataset, epsilon)]
    datasets = {one.dataset for one in here}
    ways: dict[tuple, list[Measured]] = {}
    for one in here:
        if one.seeds >= SEEDS and not math.isnan(_surely(one)):
            noise = one.runs, one.trial_shares  # by which the same words have another noise
            ways.setdefault((one.way, one.name, *noise), []).append(one)
    whole = [
        Recommendation(tuple(lines))
        for lines in ways.values()
        if {one.dataset for one in lines} == datasets
    ]
    if not whole:
        raise OsoError(
            f"not measured: no way to spend epsilon {epsilon:g} with {SEEDS} seeds on "
            f"{', '.join(sorted(datasets))}"
        )
    return max(whole, key=lambda one: one.least_gain)


def _surely(one: Measured) -> float:
    """What it gains at least, in margins; Online's searched grid gains nothing over itself."""
    return 0.0 if one.reference else (one.gain - one.gain_half) / one.margin


def _near(one: float, other: float, factor: float) -> bool:
    return one / factor <= other <= one * factor


def _between(every: Sequence[Measured], dataset: str, epsilon: float) -> bool:
    known = [one.epsilon for one in every if one.dataset == dataset]
    return min(known) <= epsilon <= max(known)


def _nearest(every: Sequence[Measured], dataset: str, epsilon: float) -> float:
    known = {one.epsilon for one in every if one.dataset == dataset}
    return min(known, key=lambda other: (abs(math.log(other / epsilon)), other))
