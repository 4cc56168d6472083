"""From what was seen of a canary to scores that are higher if it took part.

The best score against right code is the likelihood ratio. Code with a fault may give a canary away
in another manner, so a few more scores look there. All are fixed beforehand, and each is judged at
its share of the significance, so that looking at several proves no more than it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Score:
    """One number per canary [K]; `cuts`: from which value on one is taken to have been present."""

    name: str
    values: Values
    cuts: tuple[float, ...]


def score_movement(moves: Values) -> Score:
    """Of a lone canary's runs: how far C moved in one step. Right code moves it by little, with it
    and without; norms that nobody sanitized move it all at once."""
    return Score("movement of C", moves, (0.5,))


def scores(seen: Mapping[str, Values], noise: Mapping[str, float], rate: float) -> list[Score]:
    """All scores of K canaries.

    `seen`: by query, [steps, K], in units of a canary; `noise`: its standard deviation by query;
    `rate`: the sampling rate q, below 1.
    """
    # Log likelihood ratio of the canary in the batch against not in the batch, [steps, K]; and of
    # a data set with it, which is in the batch with probability q only.
    in_batch = sum((x - 0.5) / noise[name] ** 2 for name, x in seen.items())
    in_data = np.logaddexp(np.log1p(-rate), np.log(rate) + in_batch).sum(axis=0)
    all_scores = [Score("likelihood", in_data, (0.5, 1.5))]
    # An answer without its noise shows up in its plain sum, however little it weighs above.
    all_scores += [Score(name, x.sum(axis=0), (0.5,)) for name, x in seen.items()]
    # Noise that comes back, at another step or in another answer, cancels in differences: without
    # the canary nothing is left of them.
    whitened = [x / noise[name] for name, x in seen.items()]
    all_scores.append(Score("between steps", np.var(whitened[0], axis=0), (1e-3,)))
    if len(whitened) > 1:
        between = np.square(whitened[0] - whitened[1]).sum(axis=0)
        all_scores.append(Score("between queries", between, (1e-3,)))
    return all_scores
