"""Figure 1's claim is judged by the measured cosines, and only where both truths agree."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from oso_dp.analysis.claim_tests import FAILS, HOLDS, NOT_APPLICABLE, NOT_RUN, UNDECIDED, ClaimData
from oso_dp.analysis.claims import prominent_optimum
from oso_dp.analysis.side_measurements import COSINES

THRESHOLDS = np.geomspace(0.01, 100, 13)


def curves(batch, data=None, std=0.001, steps=(100, 500, 950)):
    """Cosines over C, the same at each step; data: as batch unless given."""
    data = batch if data is None else data
    return pd.DataFrame(
        {
            **dict.fromkeys(COSINES.columns, 1.0),
            "dataset": "mnist",
            "step": step,
            "threshold": threshold,
            "realisations": 20,
            "batch_mean": of_batch,
            "batch_std": std,
            "data_mean": of_data,
            "data_std": std,
        }
        for step in steps
        for threshold, of_batch, of_data in zip(THRESHOLDS, batch, data, strict=True)
    )


PEAK = 0.02 + 0.02 * np.exp(-(np.log10(THRESHOLDS) ** 2))  # at C = 1; a third lower at both ends
FALLING = np.linspace(0.04, 0.01, 13)  # the smallest C is the best: no optimum inside the range
RISING = FALLING[::-1]
LEVEL = np.full(13, 0.03)


def verdict(rows, dataset="mnist"):
    evidence = ClaimData(pd.DataFrame(), cosine=rows)
    return prominent_optimum(evidence, dataset)


@pytest.mark.parametrize(
    ("batch", "data", "expected"),
    [
        (PEAK, PEAK, HOLDS),
        (FALLING, FALLING, FAILS),
        (RISING, RISING, FAILS),
        (LEVEL, LEVEL, FAILS),
        (PEAK, LEVEL, UNDECIDED),
        (FALLING, PEAK, UNDECIDED),
    ],
)
def test_prominent_optimum_requires_both_truths(batch, data, expected):
    found = verdict(curves(batch, data))
    assert found.verdict == expected
    assert "mean over 3 steps" in found.text


def test_prominent_optimum_large_std_undecided():
    slight = LEVEL + np.where(THRESHOLDS[6] == THRESHOLDS, 0.0032, 0.0)  # a tenth and a little more
    assert verdict(curves(slight, std=0.0001)).verdict == HOLDS
    assert verdict(curves(slight, std=0.02)).verdict == UNDECIDED


def test_prominent_optimum_disagreeing_steps_not_held():
    rows = curves(PEAK, steps=(100,))
    none = curves(FALLING, steps=(500, 950))
    assert verdict(pd.concat([rows, none])).verdict != HOLDS


def test_prominent_optimum_names_closest_end():
    assert "C = 0.01 by" in verdict(curves(FALLING)).text
    assert "C = 100 by" in verdict(curves(RISING)).text


def test_prominent_optimum_unmeasured_not_run():
    assert verdict(curves(PEAK), "fashion_mnist").verdict == NOT_RUN
    assert verdict(pd.DataFrame()).verdict == NOT_RUN
    assert (
        prominent_optimum(ClaimData(pd.DataFrame()), "mnist").verdict == NOT_APPLICABLE
    )  # the paper's


def test_prominent_optimum_disagreeing_noises_undecided():
    """An optimum at only one of two noise multipliers is undecided, in any row order."""
    calm, loud = curves(PEAK).assign(noise_multiplier=0.01), curves(FALLING)
    assert verdict(pd.concat([calm, calm.assign(noise_multiplier=0.8)])).verdict == HOLDS
    assert verdict(pd.concat([loud, loud.assign(noise_multiplier=0.8)])).verdict == FAILS
    for rows in ([calm, loud], [loud, calm]):
        found = verdict(pd.concat(rows))
        assert found.verdict == UNDECIDED
        assert all(f"ν = {noise}: true" in found.text for noise in ("0.01", "1"))


@pytest.mark.parametrize("truth", ["batch", "data"])
def test_prominent_optimum_uncertain_truth_undecided(truth):
    """A large std of one cosine leaves the claim undecided, however precise the other is."""
    rows = curves(PEAK)
    assert verdict(rows).verdict == HOLDS
    assert verdict(rows.assign(**{f"{truth}_std": 0.1})).verdict == UNDECIDED
    assert verdict(curves(FALLING).assign(**{f"{truth}_std": 0.1})).verdict == UNDECIDED


@pytest.mark.parametrize("best", [0.02, 0.2])
@pytest.mark.parametrize("end", [0.02, 0.2])
def test_prominent_optimum_interval_matches_welch(best, end):
    """The interval is Welch's, where the std at an end counts 1.1 times, as its mean does."""
    peak = np.where(THRESHOLDS[6] == THRESHOLDS, 0.5, 0.3)
    rows = curves(peak, steps=(100,))
    rows["batch_std"] = rows["data_std"] = np.where(rows["batch_mean"] == 0.5, best, end)
    parts = np.array([best**2, (1.1 * end) ** 2]) / 20
    freedom = parts.sum() ** 2 / (parts**2 / 19).sum()
    half = stats.t.ppf(0.975, freedom) * np.sqrt(parts.sum())
    lead = 0.5 - 1.1 * 0.3
    assert f"by +{lead:.4f} [{lead - half:+.4f}, +{lead + half:.4f}]" in verdict(rows).text
