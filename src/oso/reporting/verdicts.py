"""When two means over seeds differ by more than noise: the report's one statistical rule.

The 95 % interval of a difference of means is Welch's: from both standard deviations (n - 1) and
both numbers of seeds. One seed has no deviation: it is taken to vary as the other side does, with
that side's degrees of freedom. Where neither side has one, nothing can be said.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

LEVEL = 0.95

REPRODUCED = "reproduced"
HIGHER = "higher"
LOWER = "lower"
NOT_RUN = "not run"
DIVERGED = "diverged"  # ours, where the paper has a value
TRAINS = "trains"  # ours, where the paper prints that all runs diverge
NO_VALUE = "no value printed"
UNDECIDED = "undecided"

SAME = "same point"
AS_GOOD = "as good"
OTHER = "another point"
PART = "part of the grid"

VALUE_RULE = (
    "Verdict: “reproduced” where the 95 % interval of ours − paper covers zero (Welch's interval, "
    "from both standard deviations and both numbers of seeds), else “higher” or “lower”. One seed "
    "has no standard deviation: it is taken to have the paper's. Each cell is judged by itself, "
    "so about one in twenty is called different by chance alone."
)
POINT_RULE = (
    "Where the paper prints hyperparameters only, they are judged: “same point”; “as good” where "
    "our runs at the paper's point are no worse than our best point by the same interval; else "
    "“another point”. This needs the whole grid: “part of the grid” says that it did not run."
)


@dataclass(frozen=True)
class Sample:
    """What is known of some runs that differ in their seeds."""

    mean: float
    std: float  # n - 1; NaN for one seed
    seeds: int


@dataclass(frozen=True)
class Difference:
    """A difference of means with its 95 % interval, mean ± half."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def difference(pairs: Sequence[tuple[Sample, Sample]]) -> Difference | None:
    """The mean over pairs (a, b) of a - b; None where a pair has no deviation at all.

    Variances add up, and degrees of freedom are Welch and Satterthwaite's. Pairs are taken to be
    independent.
    """
    total, terms = 0.0, []
    for first, second in pairs:
        total += first.mean - second.mean
        for one, other in ((first, second), (second, first)):
            known = one if one.seeds > 1 else other
            if known.seeds < 2:
                return None
            terms.append((known.std**2 / one.seeds, known.seeds - 1))
        if min(first.seeds, second.seeds) < 2:  # one deviation stands for both: count it once
            share = terms.pop()[0] + terms[-1][0]
            terms[-1] = (share, terms[-1][1])
    variance = sum(v for v, _ in terms)
    if variance == 0:
        return Difference(total / len(pairs), 0.0)
    freedom = variance**2 / sum(v**2 / n for v, n in terms)
    quantile = float(stdtrit(freedom, (1 + LEVEL) / 2))
    return Difference(total / len(pairs), quantile * math.sqrt(variance) / len(pairs))


def compared(ours: Sample, theirs: Sample) -> str:
    """`REPRODUCED`, `HIGHER` or `LOWER` (of the number, whatever is better), or `UNDECIDED`."""
    found = difference([(ours, theirs)])
    if found is None:
        return UNDECIDED
    if abs(found.mean) <= found.half:
        return REPRODUCED
    return HIGHER if found.mean > 0 else LOWER
