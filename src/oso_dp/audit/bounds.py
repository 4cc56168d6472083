"""Lower bounds on epsilon from scores, by jax_privacy's auditing module (an optional extra).

Each bound holds with 95 % confidence. Its `epsilon_from_gdp` is not used: in version 2.0.0 it is no
lower bound (equal scores within and without give an epsilon of 2 and more).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from oso_dp.audit.scores import Score
from oso_dp.errors import OsoError
from oso_dp.optional_dependencies import describe_missing

SIGNIFICANCE = 0.05
GUESSES = 0.03  # share of the canaries that the one-run audit dares to call present


def auditing() -> Any:
    """jax_privacy.auditing; OsoError says how to get it."""
    try:
        with describe_missing("the audit"):
            module = importlib.import_module("jax_privacy.auditing")
    except ImportError as error:  # it is there, and something that it asks for is not
        raise OsoError(f"audit: jax_privacy cannot be imported ({error})") from error
    return module


def one_run_bounds(
    inside: Sequence[Score], outside: Sequence[Score], delta: float
) -> tuple[float, float]:
    """From canaries of one run, each present with probability 1/2: two bounds on epsilon at delta.

    The first (Steinke et al. 2023) assumes nothing. The second (Mahloujifar et al. 2024) is
    tighter: no Gaussian mechanism of a smaller epsilon at delta is as little private as this run.
    So it speaks against a claim whose mechanism is at least as private as that Gaussian one at
    every delta. Those of `oso_dp.audit.experiments` are.
    """
    library = auditing()
    plain, gaussian = [0.0], [0.0]
    for present, absent in zip(inside, outside, strict=True):
        pooled = np.sort(np.concatenate([present.values, absent.values]))
        # The highest scores, whoever has them: so the choice of the cut costs no confidence.
        cut = library.Explicit(pooled[-max(1, round(GUESSES * len(pooled)))])
        auditor = library.CanaryScoreAuditor(present.values, absent.values)
        fraction = SIGNIFICANCE / len(inside)
        plain.append(auditor.epsilon_one_run(fraction, delta, threshold_strategy=cut))
        gaussian.append(auditor.epsilon_one_run_fdp(fraction, delta, threshold_strategy=cut))
    return float(max(plain)), float(max(gaussian))


def many_runs_bound(inside: Sequence[Score], outside: Sequence[Score], delta: float) -> float:
    """From one canary, present in some runs and absent in others (Nasr et al. 2021).

    True and false positive rates by Clopper and Pearson, at cuts that were fixed beforehand.
    """
    library = auditing()
    tests = [
        (library.CanaryScoreAuditor(present.values, absent.values), library.Explicit(cut))
        for present, absent in zip(inside, outside, strict=True)
        for cut in present.cuts
    ]
    return max(
        float(
            auditor.epsilon_clopper_pearson(
                SIGNIFICANCE / len(tests), delta, threshold_strategy=cut
            )
        )
        for auditor, cut in tests
    )
