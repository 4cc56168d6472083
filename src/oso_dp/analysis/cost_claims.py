"""Claims about the cost of a method: time per step, and noise on the gradient."""

import numpy as np

from oso_dp import labels
from oso_dp.analysis.claim_tests import (
    FAILS,
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNDECIDED,
    ClaimData,
    ClaimResult,
    ClaimTest,
)


def compare_step_times(method: str, baseline: str, at_most: float) -> ClaimTest:
    """Make the test that a step of `method` takes at most `at_most` times as long as `baseline`'s.

    The times were measured alternately on an idle machine, see `benchmarks/step_times.py`.
    """

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        if evidence.step_times is None:
            return ClaimResult(NOT_APPLICABLE)
        rows = evidence.step_times
        rows = rows[(rows["dataset"] == dataset) & (rows["method"] == method)]
        rows = rows[rows["rival"] == baseline]
        if rows.empty:
            return ClaimResult(NOT_RUN, "`make bench-step-time` was not run")
        # Every device must confirm it: report the first that contradicts it, else the slowest.
        denied = rows[rows["low"] > at_most]
        row = rows.loc[rows["high"].idxmax()] if denied.empty else denied.iloc[0]
        verdict = HOLDS if row["high"] <= at_most else UNDECIDED if denied.empty else FAILS
        text = (
            f"{row['ratio']:.2f} times the time per step [{row['low']:.2f}, {row['high']:.2f}], "
            f"{row['turns']} turns each, {row['precision']}, {row['device']}"
        )
        numbers = {"advantage": row["ratio"], "low": row["low"], "high": row["high"]}
        return ClaimResult(verdict, text, {**numbers, "margin": at_most})

    return judge


def compare_gradient_noise(method: str, at_most: float) -> ClaimTest:
    """Make the test that the second query adds at most this fraction of noise (Proposition 1)."""

    def judge(evidence: ClaimData, dataset: str) -> ClaimResult:
        if evidence.runs is None:
            return ClaimResult(NOT_APPLICABLE)
        runs = evidence.runs
        runs = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]
        runs = runs.dropna(subset=["noise_multiplier", "query_noise_multiplier"])
        if runs.empty:
            return ClaimResult(NOT_RUN, f"no run of {labels.method_label(method)}")
        fraction = runs["noise_multiplier"] / runs["query_noise_multiplier"]
        more = float((1 / np.sqrt(1 - fraction**2) - 1).max())
        verdict = HOLDS if more <= at_most + 1e-4 else FAILS  # the heuristic's own rounding
        text = f"{100 * more:.2f} % more gradient noise, from the rows' noise multipliers"
        return ClaimResult(verdict, text, {"advantage": more, "margin": at_most})

    return judge
