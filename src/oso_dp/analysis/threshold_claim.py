"""Claim C10, whether C has a prominent optimum (Figure 1), from `oso diagnose cosine`.

Prominent means here: the cosine at the best C is at least a tenth above the cosines at both ends of
the range, in the mean over the measured steps, and no single step contradicts it. The maximum of
many noisy means is biased upwards, in favour of the claim, so a claim that fails here would fail a
stricter test. The paper does not give the noise of its figure: each measured noise multiplier is
tested separately, and there is a verdict only if all agree.
"""

import pandas as pd

from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    ClaimResult,
)
from oso_dp.analysis.verdicts import Difference, Sample, difference

PROMINENT = 1.1  # times the cosine at an end of the range
TRUTHS = {"batch": "of the same batch", "data": "of all examples"}  # the reference gradient


def prominent_optimum(evidence: ClaimData, dataset: str) -> ClaimResult:
    """Test the claim; a verdict needs agreement for both reference gradients."""
    if evidence.cosine is None:
        return ClaimResult(NOT_APPLICABLE)
    rows = evidence.cosine
    rows = rows if rows.empty else rows[rows["dataset"] == dataset]
    if rows.empty:
        return ClaimResult(NOT_RUN, "`make diagnose-cosine` was not run")
    verdicts, texts = set(), []
    for noise, part in rows.groupby("noise_multiplier", sort=False):
        alone, reason = _select_one_noise(part)
        verdicts |= alone
        texts.append(f"ν = {noise:.3g}: {reason}")
    verdict = verdicts.pop() if len(verdicts) == 1 else UNDECIDED
    steps = rows["step"].nunique()
    return ClaimResult(verdict, f"{'; '.join(texts)}; mean over {steps} step{'s' * (steps > 1)}")


def _select_one_noise(rows: pd.DataFrame) -> tuple[set[str], str]:
    """The verdicts against either kind of true gradient, and what they rest on."""
    verdicts, texts = set(), []
    for truth, name in TRUTHS.items():
        lead, end = min(_optimum_leads(rows, truth), key=lambda pair: pair[0].mean)
        verdict = _verdict(lead)
        alone = [
            _verdict(one)
            for _, step in rows.groupby("step")
            for one, _ in _optimum_leads(step, truth)
        ]
        verdicts.add(UNDECIDED if verdict == HOLDS and FAILS in alone else verdict)
        texts.append(
            f"true gradient {name}: the best C leads {PROMINENT:g} times the cosine at C = {end:g} "
            f"by {_signed(lead.mean)} [{_signed(lead.low)}, {_signed(lead.high)}]"
        )
    return verdicts, "; ".join(texts)


def _optimum_leads(rows: pd.DataFrame, truth: str) -> list[tuple[Difference, float]]:
    """For each end of the range: what the best C has above it, in the mean over steps; the end."""
    leads = []
    for end in (rows["threshold"].min(), rows["threshold"].max()):
        pairs = []
        for _, curve in rows.groupby("step"):
            best = curve.loc[curve[f"{truth}_mean"].idxmax()]
            low = curve[curve["threshold"] == end].iloc[0]
            pairs.append((_lead_sample(best, truth, 1.0), _lead_sample(low, truth, PROMINENT)))
        lead = difference(pairs)
        assert lead is not None  # a standard deviation on either side
        leads.append((lead, float(end)))
    return leads


def _lead_sample(row: pd.Series, truth: str, factor: float) -> Sample:
    mean, std = factor * row[f"{truth}_mean"], factor * row[f"{truth}_std"]
    return Sample(mean, std, int(row["realisations"]))


def _verdict(lead: Difference) -> str:
    if lead.low >= 0:
        return HOLDS
    return FAILS if lead.high < 0 else UNDECIDED


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")
