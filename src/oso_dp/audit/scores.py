"""Canary scores (test statistics for membership inference), higher if a canary was present.

The likelihood ratio is optimal against correct code. Faulty code may reveal a canary in other ways,
which the other scores test. All are fixed in advance, and each is tested at its fraction of the
significance level, which corrects for multiple testing.
"""

from __future__ import annotations

from collections.abc import Mapping
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


Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Score:
    """One value per canary [K]; `cuts`: thresholds at which a canary is guessed to be present."""

    name: str
    values: Values
    cuts: tuple[float, ...]


def score_movement(moves: Values) -> Score:
    """The largest change of C in one step, for a single canary.

    Correct code changes C slowly; unsanitized norms change it at once.
    """
    return Score("movement of C", moves, (0.5,))


def scores(seen: Mapping[str, Values], noise: Mapping[str, float], rate: float) -> list[Score]:
    """All scores of K canaries.

    `seen`: by query, [steps, K], in units of a canary's contribution; `noise`: the noise's standard
    deviation by query; `rate`: the sampling rate q < 1.
    """
    # Log likelihood ratio of the canary in the batch v. not in the batch, [steps, K]; then of the
    # canary in the data, where it is in the batch with probability q.
    in_batch = sum((x - 0.5) / noise[name] ** 2 for name, x in seen.items())
    in_data = np.logaddexp(np.log1p(-rate), np.log(rate) + in_batch).sum(axis=0)
    all_scores = [Score("likelihood", in_data, (0.5, 1.5))]
    # An answer without noise shows in its plain sum, whatever its weight in the likelihood.
    all_scores += [Score(name, x.sum(axis=0), (0.5,)) for name, x in seen.items()]
    # Noise that is reused, at another step or in another answer, cancels in differences, which are
    # zero without the canary.
    whitened = [x / noise[name] for name, x in seen.items()]
    all_scores.append(Score("between steps", np.var(whitened[0], axis=0), (1e-3,)))
    if len(whitened) > 1:
        between = np.square(whitened[0] - whitened[1]).sum(axis=0)
        all_scores.append(Score("between queries", between, (1e-3,)))
    return all_scores
