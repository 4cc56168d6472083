"""How often random stopping draws has the distribution that its price was computed for."""

import math

import numpy as np
import pytest
from tests.accounting.draw_probabilities import probabilities

from oso_dp.accounting.search_accounting.random_stopping import (
    STOPPING_ETA,
    draw_number_of_runs,
    generating_function,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy

SHAPED = (*STOPPING_ETA.values(), 0.5, 3.0)


@pytest.mark.parametrize("shape", SHAPED)
def test_generating_function_matches_distribution(shape):
    chance = probabilities(4.0, shape, 150)
    assert sum(chance) == pytest.approx(1, abs=1e-6)
    assert sum(k * p for k, p in enumerate(chance)) == pytest.approx(4, abs=1e-4)
    made = generating_function(4.0, shape)
    for x in (0.0, 0.2, 0.7, 1.0):
        expected = sum(p * x**k for k, p in enumerate(chance))
        assert made(np.array(x)) == pytest.approx(expected, abs=1e-6)


def words_of(uniform: float):
    """A source whose next uniform number is this one."""
    return lambda count: np.full(count, int(uniform * 2**64), dtype=np.uint64)


@pytest.mark.parametrize("mean", [1.1, 4, 9, 81])
@pytest.mark.parametrize("shape", SHAPED)
def test_draw_number_of_runs_matches_distribution(mean, shape) -> None:
    sums = np.cumsum(probabilities(mean, shape, 100 if math.isinf(shape) else 3000))
    for uniform in np.concatenate([np.linspace(0.0005, 0.9995, 400), [0.99999, 0.9999999]]):
        runs = draw_number_of_runs(mean, shape, words_of(float(uniform)))
        if runs < len(sums):
            assert sums[runs] > uniform - 1e-9
        assert runs == 0 or sums[min(runs - 1, len(sums) - 1)] < uniform + 1e-9


def test_draw_number_of_runs_extremes_accepted() -> None:
    for shape in SHAPED:
        least = draw_number_of_runs(9, shape, lambda count: np.zeros(count, dtype=np.uint64))
        assert least == (0 if math.isinf(shape) else 1)
        assert draw_number_of_runs(9, shape, words_of(1 - 2.0**-53)) > 20


@pytest.mark.parametrize("mean", [2, 9, 81, 1000])
def test_draw_number_of_runs_maximum_bounded(mean: int) -> None:
    most = draw_number_of_runs(mean, 1.0, lambda count: np.full(count, 2**64 - 1, dtype=np.uint64))
    farthest = 54 * math.log(2) / -math.log1p(-1 / mean)  # the chance of more is 2^-54
    # Float64's sum of chances may end a little before.
    assert 0.8 * farthest < most < farthest + 2


def test_draw_number_of_runs_underflow_rejected() -> None:
    """For a large mean, the Poisson probability of zero runs underflows to 0."""
    assert 600 < draw_number_of_runs(700, math.inf, words_of(0.5)) < 800
    with pytest.raises(OsoError, match="mean: 701; must be <= 700 for Poisson"):
        draw_number_of_runs(701, math.inf, words_of(0.5))
    assert draw_number_of_runs(1000, 1.0, words_of(0.5)) > 600  # the others have no such limit


@pytest.mark.parametrize("source", [Seeded(), SystemEntropy()])
def test_draw_number_of_runs_averages_mean(source) -> None:
    words = source.words("a search", "draws", 0)
    drawn = np.array([draw_number_of_runs(9, 1.0, words) for _ in range(2000)])
    assert abs(drawn.mean() - 9) < 5 * math.sqrt(9 * 8 / 2000)
    assert len(set(drawn)) > 20
