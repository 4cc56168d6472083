"""Batches as a binomial size and a subset: the law of independent choices, exactly."""

import math
from collections import Counter
from contextlib import suppress
from itertools import combinations, pairwise, product

import numpy as np
import pytest
import scipy.stats

from oso_dp.privacy.sampling import draw_binomial, draw_subset, uniform_below
from oso_dp.privacy.rng_sources import RandomSource, Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling

SOURCES = [Seeded(), SystemEntropy()]


class Given:
    """Words whose highest bits stand in a list; IndexError after that."""

    def __init__(self, values: tuple[int, ...], bits: int) -> None:
        self.left, self.bits = list(values), bits

    def __call__(self, count: int) -> np.ndarray:
        return np.array([self.left.pop(0) << (64 - self.bits) for _ in range(count)], dtype="u8")


@pytest.mark.parametrize("examples", [1, 2, 3, 4])
@pytest.mark.parametrize("eighths", range(1, 8))
def test_all_bits_together_give_the_binomial_law(examples: int, eighths: int) -> None:
    """Rates of three binary digits, each possible bit once: every size as often as it must be."""
    patterns = product(range(2**examples), repeat=3)
    sizes = Counter(
        draw_binomial(examples, eighths / 8, Given(pattern, examples)) for pattern in patterns
    )
    expected = {
        size: math.comb(examples, size) * eighths**size * (8 - eighths) ** (examples - size)
        for size in range(examples + 1)
    }
    assert sizes == Counter({size: number for size, number in expected.items() if number})


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 0.999, 512 / 60_000, 1e-12, 2.0**-40])
def test_every_digit_of_the_rate_counts(rate: float) -> None:
    """Of an example whose number is the rate, or another than that in one binary digit."""
    numerator, denominator = rate.as_integer_ratio()
    digits = denominator.bit_length() - 1
    for other in (0, *(1 << place for place in range(digits))):
        number = numerator ^ other
        given = tuple(number >> place & 1 for place in reversed(range(digits)))
        batch = PoissonSampling(rate).draw(1, Given(given, 1))
        assert len(batch) == (number < numerator)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("examples", [3, 4, 5])
def test_all_numbers_together_give_each_subset_alike(examples: int, size: int) -> None:
    """Of all sequences of four numbers (some too large, some twice) those that suffice."""
    bits = (examples - 1).bit_length()
    found: Counter[tuple[int, ...]] = Counter()
    for pattern in product(range(2**bits), repeat=4):
        with suppress(IndexError):
            found[tuple(draw_subset(examples, size, Given(pattern, bits)).tolist())] += 1
    assert set(found) == set(combinations(range(examples), size))
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("source", SOURCES)
def test_small_data_sets_have_the_product_law(source: RandomSource) -> None:
    """Every set of examples with the probability that independent choices give it."""
    examples, rate, draws = 5, 0.37, 6000
    words = [source.words("run", "sampling", step) for step in range(draws)]
    found = Counter(tuple(PoissonSampling(rate).draw(examples, each)) for each in words)
    subsets = [each for size in range(6) for each in combinations(range(5), size)]
    probabilities = [rate ** len(s) * (1 - rate) ** (5 - len(s)) for s in subsets]
    expected = draws * np.array(probabilities)
    assert sum(found.values()) == sum(found[each] for each in subsets)
    assert scipy.stats.chisquare([found[each] for each in subsets], expected).pvalue > 1e-5


@pytest.mark.parametrize("source", SOURCES)
def test_many_steps_of_several_runs_have_the_law(source: RandomSource) -> None:
    """The study's size: 3,000 steps at q = 512 / 60,000."""
    examples, rate, runs = 60_000, 512 / 60_000, ("a", "b")
    batches = [
        [PoissonSampling(rate).draw(examples, source.words(run, "sampling", step)) for run in runs]
        for step in range(1, 3001)
    ]
    sizes = np.array([[len(batch) for batch in step] for step in batches])
    law = scipy.stats.binom(examples, rate)
    assert abs(sizes.mean() - 512) < 5 * law.std() / math.sqrt(6000)
    assert abs(sizes.var() / law.var() - 1) < 5 * math.sqrt(2 / 6000)
    edges = np.array([-np.inf, 470, 485, 495, 505, 512, 520, 530, 545, np.inf])
    cells = np.histogram(sizes, edges + 0.5)[0]
    assert scipy.stats.chisquare(cells, 6000 * np.diff(law.cdf(edges))).pvalue > 1e-5
    # Who takes part: each example as often as another, whatever its place in the data set.
    taken = np.bincount(np.concatenate([b for step in batches for b in step]), minlength=examples)
    assert abs(taken.var() / (6000 * rate * (1 - rate)) - 1) < 5 * math.sqrt(2 / examples)
    halves = taken.reshape(100, -1).sum(axis=1)
    assert scipy.stats.chisquare(halves, np.full(100, halves.mean())).pvalue > 1e-5
    odd = taken[1::2].sum() / taken.sum()
    assert abs(odd - 0.5) < 5 * 0.5 / math.sqrt(taken.sum())
    # Batches of two steps, and of two runs, have q^2 n examples in common.
    common = [len(np.intersect1d(a, b)) for a, b in batches[:500]]
    first = [step[0] for step in batches[:501]]
    later = [len(np.intersect1d(a, b)) for a, b in pairwise(first)]
    for number in (np.mean(common), np.mean(later)):
        assert abs(number - examples * rate**2) < 5 * math.sqrt(examples * rate**2 / 500)
    assert abs(np.corrcoef(sizes[:, 0], sizes[:, 1])[0, 1]) < 5 / math.sqrt(3000)
    assert abs(np.corrcoef(sizes[:-1, 0], sizes[1:, 0])[0, 1]) < 5 / math.sqrt(3000)


@pytest.mark.parametrize("bits", [1, 63, 64, 65, 128, 1000])
def test_so_many_bits_count_and_no_more(bits: int) -> None:
    """With every bit a 1 nobody is below 1/2 or 1/4; with every bit a 0, all are."""
    asked = []

    def ones(count: int) -> np.ndarray:
        asked.append(count)
        return np.full(count, 2**64 - 1, dtype=np.uint64)

    assert draw_binomial(bits, 0.5, ones) == 0
    assert draw_binomial(bits, 0.25, ones) == 0
    assert set(asked) == {-(-bits // 64)}
    assert draw_binomial(bits, 0.5, lambda count: np.zeros(count, dtype=np.uint64)) == bits


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rate", [1e-12, 0.001, 0.3, 0.5, 0.7, 0.999, 1.0])
def test_a_batch_is_a_set_of_examples(source: RandomSource, rate: float) -> None:
    for examples in (1, 2, 1000):
        batch = PoissonSampling(rate).draw(examples, source.words("run", "sampling", examples))
        assert batch.dtype == np.int64
        assert (np.diff(batch) > 0).all()
        assert set(batch) <= set(range(examples))
        deviation = math.sqrt(examples * rate * (1 - rate))
        assert abs(len(batch) - examples * rate) <= 6 * deviation + 1


@pytest.mark.parametrize("limit", [2, 3, 1000, 2**16 + 1, 60_000])
def test_whole_numbers_are_uniform(limit: int) -> None:
    drawn = uniform_below(limit, 20_000, Seeded().words("run", "sampling", limit))
    assert drawn.shape == (20_000,)
    assert 0 <= drawn.min() <= drawn.max() < limit
    cells = np.bincount(drawn * min(limit, 7) // limit, minlength=min(limit, 7))
    shares = np.bincount(np.arange(limit) * min(limit, 7) // limit) / limit
    assert scipy.stats.chisquare(cells, 20_000 * shares).pvalue > 1e-5


def test_a_batch_costs_as_much_as_it_is_long() -> None:
    """Two bits for an example that does not take part, instead of a number."""
    asked = 0
    words = Seeded().words("run", "sampling", 1)

    def counted(count: int) -> np.ndarray:
        nonlocal asked
        asked += count
        return words(count)

    PoissonSampling(512 / 120_000).draw(120_000, counted)
    assert asked < 3 * 512 + 2.2 * 120_000 / 64
