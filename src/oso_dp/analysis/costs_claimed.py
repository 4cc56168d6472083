"""Claims about what a method costs beside another: time, and noise on the gradient."""

import numpy as np

from oso_dp import labels
from oso_dp.analysis.evidence import (
    FAILS,
    HOLDS,
    NOT_RUN,
    NOTHING,
    UNDECIDED,
    Evidence,
    Finding,
    Judge,
)


def step_time(method: str, baseline: str, at_most: float) -> Judge:
    """That a step of `method` takes at most so many times as long as one of `baseline`.

    From what was measured in turns on a quiet machine, see `benchmarks/step_times.py`.
    """

    def judge(evidence: Evidence, dataset: str) -> Finding:
        if evidence.step_times is None:
            return Finding(NOTHING)
        rows = evidence.step_times
        rows = rows[(rows["dataset"] == dataset) & (rows["method"] == method)]
        rows = rows[rows["rival"] == baseline]
        if rows.empty:
            return Finding(NOT_RUN, "`make bench-step-time` was not run")
        # Every device has to say it; the one where it costs most speaks, and first one that denies.
        denied = rows[rows["low"] > at_most]
        row = rows.loc[rows["high"].idxmax()] if denied.empty else denied.iloc[0]
        verdict = HOLDS if row["high"] <= at_most else UNDECIDED if denied.empty else FAILS
        text = (
            f"{row['ratio']:.2f} times the time per step [{row['low']:.2f}, {row['high']:.2f}], "
            f"{row['turns']} turns each, {row['precision']}, {row['device']}"
        )
        numbers = {"advantage": row["ratio"], "low": row["low"], "high": row["high"]}
        return Finding(verdict, text, {**numbers, "margin": at_most})

    return judge


def gradient_noise(method: str, at_most: float) -> Judge:
    """That the second query costs the gradient at most this share more noise (Proposition 1)."""

    def judge(evidence: Evidence, dataset: str) -> Finding:
        if evidence.runs is None:
            return Finding(NOTHING)
        runs = evidence.runs
        runs = runs[(runs["dataset"] == dataset) & (runs["method"] == method)]
        runs = runs.dropna(subset=["noise_multiplier", "query_noise_multiplier"])
        if runs.empty:
            return Finding(NOT_RUN, f"no run of {labels.method_label(method)}")
        share = runs["noise_multiplier"] / runs["query_noise_multiplier"]
        more = float((1 / np.sqrt(1 - share**2) - 1).max())
        verdict = HOLDS if more <= at_most + 1e-4 else FAILS  # the heuristic's own rounding
        text = f"{100 * more:.2f} % more gradient noise, from the rows' noise multipliers"
        return Finding(verdict, text, {"advantage": more, "margin": at_most})

    return judge
