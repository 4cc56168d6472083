"""A random subset, exactly: a binomial size, then all subsets of that size alike.

Together they have the law of n independent choices with probability q, at the cost of the subset's
size and two random bits per example, instead of one uniform number per example. No logarithm and no
rounded sum stands in the way: q is a float, so it is a whole number over a power of two, and the
draws below have exactly the probabilities that they state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Words = Callable[[int], np.ndarray]  # so many random 64-bit words, uint64 [count]; each time others


def draw_binomial(examples: int, rate: float, words: Words) -> int:
    """How many of `examples` independent uniform numbers in [0, 1) are below `rate`.

    All of them are compared with the rate one binary digit at a time. The number of those that
    have a 1 in a place is that of the ones in as many random bits; who has another digit than the
    rate is decided, so that about half go on to the next place.
    """
    taken, undecided = 0, examples
    while undecided and rate:
        rate *= 2  # exact, as is the subtraction below
        ones = _ones(undecided, words)
        if rate >= 1:  # the rate's digit is 1: a 0 is below it
            rate -= 1
            taken, undecided = taken + undecided - ones, ones
        else:
            undecided -= ones
    return taken  # who has all of the rate's digits is not below it


def draw_subset(examples: int, size: int, words: Words) -> np.ndarray:
    """A uniformly random subset of range(examples), ascending, int64 [size].

    Whole numbers are drawn until so many different ones were; nothing here prefers one number to
    another, so that every subset of this size is as probable as any.
    """
    if 2 * size > examples:  # fewer are left out
        kept = np.ones(examples, dtype=bool)
        kept[draw_subset(examples, examples - size, words)] = False
        return np.flatnonzero(kept)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        chosen = np.concatenate([chosen, uniform_below(examples, size - len(chosen), words)])
        chosen.sort()
        chosen = chosen[np.concatenate([[True], chosen[1:] != chosen[:-1]])]
    return chosen


def uniform_below(limit: int, count: int, words: Words) -> np.ndarray:
    """Uniform whole numbers in [0, limit), int64 [count]; those too large are drawn again."""
    bits = max(1, (limit - 1).bit_length())
    accepted = np.empty(0, dtype=np.int64)
    while len(accepted) < count:
        drawn = (words(count - len(accepted)) >> np.uint64(64 - bits)).astype(np.int64)
        accepted = np.concatenate([accepted, drawn[drawn < limit]])
    return accepted


def _ones(bits: int, words: Words) -> int:
    """How many of so many random bits are 1."""
    drawn = words(-(-bits // 64))
    ones = (int(drawn[-1]) >> (-bits % 64)).bit_count()
    return ones + int(np.bitwise_count(drawn[:-1]).sum()) if len(drawn) > 1 else ones
