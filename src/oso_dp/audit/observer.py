"""Records each step's sanitized answers, projected on the canaries' directions.

The guarantee covers all answers and everything computed from them (parameters, thresholds), so an
auditor may use all of them; `oso_dp.training.loop.train` passes them to its `watch` callback.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oso_dp.audit.scores import Transcript
from oso_dp.errors import OsoError
from oso_dp.methods import Method, State
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.queries import ThresholdQuery

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query

# A clipped canary's contribution to each sum, by the query's kind, as a function of C [R].
# Automatic clipping also scales a canary's long gradient to C, up to 1 in 10,000.
FOOTPRINTS: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped_gradient": lambda threshold: threshold,
    "automatic_gradient": lambda threshold: threshold,
    "adaptive_gradient": lambda threshold: threshold,
    "clipped_direction": torch.ones_like,
    "unclipped_count": lambda threshold: torch.full_like(threshold, -0.5),
}


class Observer:
    """A `watch` callback for `train`: sums along canaries, in units of a canary's contribution.

    In correct code, a canary's value at a step is its presence in the batch, 1 or 0, plus noise
    with the standard deviation nu of the query. `columns`: the canaries' input columns. Scalar
    answers are used for a single canary only, since they do not distinguish several.
    """

    def __init__(self, method: Method, columns: slice) -> None:
        self.method, self.columns = method, columns
        self.noise: dict[str, float] = {}  # nu by the query's name
        self._seen: dict[str, list[Tensor]] = {}
        self._thresholds: list[Tensor] = []

    def __call__(self, state: State, answers: Answers) -> None:
        alone = self.columns.stop - self.columns.start == 1
        self._thresholds.append(state.threshold.detach().double().cpu())
        for query in self.method.queries(state):
            if query.kind not in FOOTPRINTS or not isinstance(query, ThresholdQuery):
                raise OsoError(
                    f"audit: query {query.name!r} of method {self.method.name!r} is not supported; "
                    f"must be one of {', '.join(FOOTPRINTS)}"
                )
            if query.scalar and not alone:
                continue
            footprint = FOOTPRINTS[query.kind](query.threshold)[:, None]
            total = answers[query.key] * state.batch_size
            along = total[:, None] if query.scalar else self._project_on_canaries(total)
            self._add(query, along / footprint)

    def _add(self, query: Query, along: Tensor) -> None:
        """along: in units of a canary's contribution, [R, m]."""
        self.noise[query.name] = query.noise_multiplier
        self._seen.setdefault(query.name, []).append(along)

    def _project_on_canaries(self, total: Tensor) -> Tensor:
        """[R, P] to [R, m]: products with (-1, 1) / sqrt(2) in each canary's column."""
        first, second = total.unflatten(1, (2, -1))[:, :, self.columns].unbind(dim=1)
        return (second - first) / math.sqrt(2)

    def transcript(self, ledger: Ledger) -> Transcript:
        """The transcript, after the last step."""
        logs = torch.stack(self._thresholds).log()
        moves = logs.diff(dim=0).abs().amax(dim=0) if len(logs) > 1 else torch.zeros_like(logs[0])
        return Transcript(self.answers(), self.noise, moves.numpy(), ledger)

    def answers(self) -> dict[str, npt.NDArray[np.float64]]:
        """By the query's name: steps x (runs x canaries)."""
        return {
            name: torch.stack(steps).flatten(1).double().numpy()
            for name, steps in self._seen.items()
        }
