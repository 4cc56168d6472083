"""What an auditor sees of some runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oso_dp.privacy.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Transcript:
    """R runs of K / R canaries.

    `answers`: by query, steps x K, in units of a canary's contribution; `noise`: the noise's
    standard deviation by query. `moves`: each run's largest |log C_t+1 / C_t|, [R]. `ledger`: the
    first run's.
    """

    answers: dict[str, npt.NDArray[np.float64]]
    noise: dict[str, float]
    moves: npt.NDArray[np.float64]
    ledger: Ledger
