"""Exact Poisson subsets: a binomial size, then a uniformly random subset of that size.

This has the distribution of n independent choices with probability q, and costs the size of the
subset and two random bits per example, instead of a uniform number per example. It is exact,
without logarithms or rounded sums: q is a float, an integer over a power of two, so the draws below
have exactly the stated probabilities.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Words = Callable[[int], np.ndarray]  # count -> fresh random 64-bit words, uint64 [count]


def draw_binomial(examples: int, rate: float, words: Words) -> int:
    """How many of `examples` independent uniform numbers in [0, 1) are below `rate`.

    All are compared with the rate one binary digit at a time. The number of ones in a digit is the
    number of ones in as many random bits. A number whose digit differs from the rate's is decided,
    so that about half remain for the next digit.
    """
    below, undecided = 0, examples
    while undecided and rate:
        rate *= 2  # exact, as is the subtraction below
        ones = _ones(undecided, words)
        if rate >= 1:  # the rate's digit is 1: a 0 is below it
            rate -= 1
            below, undecided = below + undecided - ones, ones
        else:
            undecided -= ones
    return below  # a number with all of the rate's digits is not below it


def draw_subset(examples: int, size: int, words: Words) -> np.ndarray:
    """A uniformly random subset of range(examples), ascending, int64 [size].

    Integers are drawn until `size` distinct ones were. This treats all integers alike, so all
    subsets of this size are equally probable.
    """
    if 2 * size > examples:  # draw the complement, which is smaller
        selected = np.ones(examples, dtype=bool)
        selected[draw_subset(examples, examples - size, words)] = False
        return np.flatnonzero(selected)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        chosen = np.concatenate([chosen, uniform_below(examples, size - len(chosen), words)])
        chosen.sort()
        chosen = chosen[np.concatenate([[True], chosen[1:] != chosen[:-1]])]
    return chosen


def uniform_below(limit: int, count: int, words: Words) -> np.ndarray:
    """Uniform integers in [0, limit), int64 [count], by rejection."""
    bits = max(1, (limit - 1).bit_length())
    accepted = np.empty(0, dtype=np.int64)
    while len(accepted) < count:
        drawn = (words(count - len(accepted)) >> np.uint64(64 - bits)).astype(np.int64)
        accepted = np.concatenate([accepted, drawn[drawn < limit]])
    return accepted


def _ones(bits: int, words: Words) -> int:
    """The number of ones among `bits` random bits."""
    drawn = words(-(-bits // 64))
    ones = (int(drawn[-1]) >> (-bits % 64)).bit_count()
    return ones + int(np.bitwise_count(drawn[:-1]).sum()) if len(drawn) > 1 else ones
