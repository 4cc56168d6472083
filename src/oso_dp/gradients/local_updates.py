"""Updates of users: what a user's local training changes, in place of an example's gradient.

A user's update is theta - theta_u, so that a step against it goes where the user's SGD went; after
one step at rate 1 it is the mean gradient of the user's rows. A group of users trains at once, each
as one of the engine's parallel runs. The updates are held as they are, [B, P]: what is measured is
what is added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from oso_dp.gradients.engine import GradientEngine
from oso_dp.gradients.layer_gradients import LARGEST_NORM, row_norms
from oso_dp.gradients.precision import float32
from oso_dp.gradients.structured import Structure


class LocalBatch(Protocol):
    """Rows of G users: inputs and targets, [G, w, ...] each.

    weights: of each row in the user's mean gradient, [G, w]; 0 for padding. absent: rows that count
    as if their gradients were not finite, bool [G, w].
    """

    @property
    def inputs(self) -> Structure: ...
    @property
    def targets(self) -> Tensor: ...
    @property
    def weights(self) -> Tensor: ...
    @property
    def absent(self) -> Tensor | None: ...


def train_locally(
    engine: GradientEngine,
    flat: Tensor,
    users: int,
    steps: Iterable[Iterable[LocalBatch]],
    learning_rate: float,
) -> Tensor:
    """theta - theta_u of a group of users, from the parameters flat [P], as [users, P].

    A step's gradient is the sum of its batches' weighted gradients. A row with a gradient that is
    not finite adds nothing; the update of a user with no other rows is NaN.
    """
    moved = flat.new_zeros(users, len(flat))
    is_usable = torch.zeros(users, dtype=torch.bool, device=flat.device)
    for step in steps:
        gradient = torch.zeros_like(moved)
        for batch in step:
            gradients = engine(flat - moved, batch.inputs, batch.targets, batch.absent)
            gradient += gradients.weighted_sums(batch.weights[:, None].to(flat.dtype))[:, 0]
            rows = gradients.norms().isfinite() & (batch.weights > 0)
            is_usable |= rows.any(dim=1)
        moved.add_(gradient, alpha=learning_rate)
    return moved.masked_fill(~is_usable[:, None], torch.nan)


class LocalUpdates:
    """The updates [B, P] of one run's batch of B users, as `PerExampleGradients`.

    An update that is not finite, or too large to add up, counts as one with norm inf.
    """

    def __init__(self, engine: GradientEngine, updates: Tensor) -> None:
        self.sizes = dict(engine.layer_sizes)
        norms = row_norms(updates)
        self.bad = ~(norms < LARGEST_NORM)
        self._norms = norms.masked_fill(self.bad, torch.inf).to(updates.dtype)[None]
        self.updates = updates.masked_fill(self.bad[:, None], 0.0)

    def norms(self) -> Tensor:
        """[1, B]"""
        return self._norms

    def layer_norms(self) -> dict[str, Tensor]:
        """Of each layer's part, float64 [1, B]; inf in every layer where `norms` is inf."""
        return {
            layer: row_norms(part).masked_fill(self.bad, torch.inf)[None]
            for layer, part in self._by_layer().items()
        }

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """weights [1, J, B] -> [1, J, P], or of these layers only."""
        updates = self.updates
        if layers is not None:
            parts = self._by_layer()
            updates = torch.cat([parts[layer] for layer in layers], dim=1)
        with float32(weights.device):
            return weights.to(updates.dtype) @ updates

    def plain_sums(self, present: Tensor) -> Tensor:
        """present: bool [1, B]; [1, P]"""
        return self.weighted_sums(present[:, None].to(self.updates.dtype))[:, 0]

    def _by_layer(self) -> dict[str, Tensor]:
        parts = self.updates.split([*self.sizes.values()], dim=1)
        return dict(zip(self.sizes, parts, strict=True))
