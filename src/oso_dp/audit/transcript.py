"""What an auditor has after some runs, whichever code trained them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oso_dp.privacy.ledger import Ledger


@dataclass(frozen=True, eq=False)
class Transcript:
    """R runs of K / R canaries.

    `answers`: by query, steps x K, in units of a canary; `noise`: its standard deviation by query.
    `moves`: of each run the largest |log C_t+1 / C_t|, [R]. `ledger`: of the first run.
    """

    answers: dict[str, npt.NDArray[np.float64]]
    noise: dict[str, float]
    moves: npt.NDArray[np.float64]
    ledger: Ledger
