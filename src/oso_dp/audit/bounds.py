"""Lower bounds on epsilon from canary scores, by jax_privacy's auditing module (extra `audit`).

Each bound holds with 95 % confidence. `epsilon_from_gdp` is not used: in version 2.0.0 it is not a
lower bound (equal scores of present and absent canaries give an epsilon of 2 and more).
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
GUESSES = 0.03  # fraction of the canaries that the one-run audit guesses to be present


def auditing() -> Any:
    """The module jax_privacy.auditing; OsoError if it is not installed."""
    try:
        with describe_missing("the audit"):
            module = importlib.import_module("jax_privacy.auditing")
    except ImportError as error:  # installed, but one of its dependencies is not
        raise OsoError(f"audit: cannot import jax_privacy ({error})") from error
    return module


def one_run_bounds(
    inside: Sequence[Score], outside: Sequence[Score], delta: float
) -> tuple[float, float]:
    """Two bounds on epsilon from one run whose canaries are present with probability 1/2 each.

    The first (Steinke et al. 2023) has no assumptions. The second (Mahloujifar et al. 2024) is
    tighter: it rules out every Gaussian mechanism of a smaller epsilon at `delta`. It refutes a
    claimed mechanism that is at least as private as that Gaussian mechanism at every delta, as
    those of `oso_dp.audit.experiments` are.
    """
    library = auditing()
    plain, gaussian = [0.0], [0.0]
    for present, absent in zip(inside, outside, strict=True):
        pooled = np.sort(np.concatenate([present.values, absent.values]))
        # A quantile of the pooled scores does not depend on presence, so it costs no confidence.
        cut = library.Explicit(pooled[-max(1, round(GUESSES * len(pooled)))])
        auditor = library.CanaryScoreAuditor(present.values, absent.values)
        fraction = SIGNIFICANCE / len(inside)
        plain.append(auditor.epsilon_one_run(fraction, delta, threshold_strategy=cut))
        gaussian.append(auditor.epsilon_one_run_fdp(fraction, delta, threshold_strategy=cut))
    return float(max(plain)), float(max(gaussian))


def many_runs_bound(inside: Sequence[Score], outside: Sequence[Score], delta: float) -> float:
    """A bound from one canary, present in some runs and absent in others (Nasr et al. 2021).

    Uses Clopper-Pearson intervals of true and false positive rates at cuts fixed in advance.
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
