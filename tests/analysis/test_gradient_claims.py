"""Measured cosines, stored C and rho: judged by their own numbers, in whatever order they come."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t, ttest_ind_from_stats
from tests.analysis.test_adaptation_signs import evaluated, stored
from tests.analysis.test_prominent_optimum import FALLING, LEVEL, PEAK, THRESHOLDS, curves, verdict

from oso_dp.analysis.adaptation_signs import count_adaptation_signs
from oso_dp.analysis.claim_tests import FAILS, HOLDS, UNDECIDED


@pytest.mark.parametrize("realisations", [2, 3, 5, 20, 100])
@pytest.mark.parametrize("std", [0.001, 0.01])
def test_prominent_optimum_realisations_match_welch(realisations: int, std: float) -> None:
    """The interval is Welch's, where the cosine at an end and its std count 1.1 times."""
    rows = curves(PEAK, std=std, steps=(100,)).assign(realisations=realisations)
    best, end = PEAK.max(), 1.1 * PEAK[0]
    errors = np.array([std**2, (1.1 * std) ** 2]) / realisations
    freedom = errors.sum() ** 2 / (errors**2 / (realisations - 1)).sum()
    half = t.ppf(0.975, freedom) * np.sqrt(errors.sum())
    lead = best - end
    said = f"by {lead:+.4f} [{lead - half:+.4f}, {lead + half:+.4f}]".replace("-", "−")
    found = verdict(rows)
    assert found.text.count(said) == 2
    assert found.verdict == (HOLDS if lead >= half else UNDECIDED)
    test = ttest_ind_from_stats(best, std, realisations, end, 1.1 * std, realisations, False)
    assert (test.pvalue < 0.05) == (found.verdict == HOLDS)


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_prominent_optimum_disagreeing_step_undecided(odd: int) -> None:
    """One of three steps without an optimum leaves the claim undecided."""
    steep = 0.02 + 0.2 * np.exp(-(np.log10(THRESHOLDS) ** 2))
    steps = [100, 500, 950]
    rows = [
        curves(LEVEL if place == odd else steep, steps=(step,)) for place, step in enumerate(steps)
    ]
    assert verdict(pd.concat(rows)).verdict == UNDECIDED
    assert verdict(curves(steep)).verdict == HOLDS
    assert verdict(curves(FALLING)).verdict == FAILS


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_count_adaptation_signs_ignores_row_order(order) -> None:
    rows = evaluated([51, 101, 151], [0.1, 0.12, 0.11], [2.0, 1.9, 2.1])
    shuffled = rows.iloc[list(order)].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        count_adaptation_signs(stored(), shuffled), count_adaptation_signs(stored(), rows)
    )
