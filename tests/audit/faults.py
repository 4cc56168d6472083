"""Faults to plant into the running code, one at a time: the audit must see each.

Each replaces one function of the privacy room or of the gradient code while its context lasts. The
ledger stays as the faulty code writes it: the claim is what such code would have claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from oso_dp.audit.canaries import THRESHOLD
from oso_dp.audit.models import MODELS
from oso_dp.audit.run_audit import Fault
from oso_dp.gradients import BatchGradients, forward_backward
from oso_dp.gradients.local_updates import LocalUpdates
from oso_dp.gradients.shared_parameters import PartedGradients
from oso_dp.privacy import unnoised_sums
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, ClippingQuery, Query, Runs
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training import loop, user_updates


def _no_noise(kind: str) -> AbstractContextManager[Any]:
    right = Mechanism._add_noise

    def add_noise(
        self: Mechanism, totals: Sequence[Tensor], queries: Sequence[Query], *rest: Any
    ) -> list[Tensor]:
        noised = right(self, totals, queries, *rest)
        return [
            total if query.kind == kind else one
            for total, one, query in zip(totals, noised, queries, strict=True)
        ]

    return patch.object(Mechanism, "_add_noise", add_noise)


def _noise_of_the_mean() -> AbstractContextManager[Any]:
    right = Mechanism._add_noise

    def add_noise(self: Mechanism, totals: Sequence[Tensor], *rest: Any) -> list[Tensor]:
        noised = zip(totals, right(self, totals, *rest), strict=True)
        return [total + (one - total) / self.batch_size for total, one in noised]

    return patch.object(Mechanism, "_add_noise", add_noise)


def _same_noise() -> AbstractContextManager[Any]:
    right = Seeded.fill

    def fill(self: Seeded, out: np.ndarray, run_id: str, purpose: str, step: int, *at: int) -> None:
        right(self, out, run_id, purpose, 1, *at)

    return patch.object(Seeded, "fill", fill)


def _shared_noise() -> AbstractContextManager[Any]:
    right = Seeded.fill

    def fill(self: Seeded, out: np.ndarray, run_id: str, purpose: str, *rest: int) -> None:
        right(self, out, run_id, "noise", *rest)

    return patch.object(Seeded, "fill", fill)


def _one_number() -> AbstractContextManager[Any]:
    right = Seeded.fill

    def fill(self: Seeded, out: np.ndarray, *whose: Any) -> None:
        right(self, out, *whose)
        out[:] = out[0]

    return patch.object(Seeded, "fill", fill)


def _no_clip() -> AbstractContextManager[Any]:
    def parts(self: Query, norms: Tensor, runs: slice) -> tuple[Tensor, Tensor]:
        return norms.isfinite().to(norms.dtype), torch.zeros_like(norms)

    return patch.object(ClippingQuery, "components", parts)


@contextmanager
def _no_direction_clip() -> Iterator[None]:
    def weights(self: Query, norms: Tensor, runs: Runs) -> Tensor:
        return norms.isfinite().to(norms.dtype)

    with (
        patch.object(ClippedDirection, "weights", weights),
        patch.object(unnoised_sums, "have_same_components", lambda queries: []),
    ):
        yield


def _unscaled_noise() -> AbstractContextManager[Any]:
    return patch.object(ClippedGradient, "sensitivity", lambda self, runs: 1.0)


def _small_norms() -> AbstractContextManager[Any]:
    right = BatchGradients._take_gradients

    def take_gradients(self: BatchGradients) -> Tensor:
        # In training's precision alone: else the start of a training would refuse it.
        scale = 4 if self.flat.dtype == torch.float32 else 1
        norms = right(self) / scale
        self._layer_norms = {name: norm / scale for name, norm in self._layer_norms.items()}
        return norms

    return patch.object(BatchGradients, "_take_gradients", take_gradients)


def _repeated_examples() -> AbstractContextManager[Any]:
    right = BatchRNG._pad

    def pad(self: BatchRNG, drawn: Sequence[Any], width: int) -> tuple[Tensor, Tensor]:
        indices, present = right(self, drawn, width)
        return indices.repeat(1, 4), present.repeat(1, 4)

    return patch.object(BatchRNG, "_pad", pad)


def _whole_batch() -> AbstractContextManager[Any]:
    return patch.object(PoissonSampling, "draw", lambda self, examples, words: np.arange(examples))


def _same_batch() -> AbstractContextManager[Any]:
    right = BatchRNG._draw
    return patch.object(BatchRNG, "_draw", lambda self, run_ids, step: right(self, run_ids, 1))


def _deviation_booked() -> AbstractContextManager[Any]:
    right = Ledger.record

    def record(self: Ledger, queries: tuple[SumQuery, ...]) -> None:
        booked = [
            SumQuery(query.name, query.noise_multiplier * THRESHOLD)
            if query.name.startswith("clipped_gradient")
            else query
            for query in queries
        ]
        right(self, tuple(booked))

    return patch.object(Ledger, "record", record)


def _norms_of_other_masks() -> AbstractContextManager[Any]:
    right = BatchGradients._take_gradients

    def take(self: BatchGradients) -> Tensor:
        norms = right(self)
        if self.flat.dtype == torch.float32:
            self._chunks, self._widths = [], []
            right(self)  # torch's generator has moved on
        return norms

    return patch.object(BatchGradients, "_take_gradients", take)


def _norms_of_one_use() -> AbstractContextManager[Any]:
    right = forward_backward.combine

    def combine(uses: Sequence[Any], shape: torch.Size) -> Any:
        gradients = right(uses, shape)
        if uses[0].errors.dtype == torch.float32:
            gradients.norms = right(uses[:1], shape).norms  # type: ignore[method-assign]
        return gradients

    return patch.object(forward_backward, "combine", combine)


def _norms_of_the_mean_view() -> AbstractContextManager[Any]:
    right = PartedGradients.norms
    views = MODELS["augmentations"].views
    return patch.object(PartedGradients, "norms", lambda self: right(self) / views)


def _clipped_local_steps() -> AbstractContextManager[Any]:
    """Each local step is clipped to C, and not their sum."""
    right = user_updates.train_locally

    def train_locally(engine: Any, flat: Tensor, users: int, steps: Any, rate: float) -> Tensor:
        parts = (right(engine, flat, users, [step], rate) for step in steps)
        return sum(
            part * (THRESHOLD / part.norm(dim=1, keepdim=True)).clamp(max=1) for part in parts
        )

    @contextmanager
    def plant() -> Iterator[None]:
        with (
            patch.object(user_updates, "train_locally", train_locally),
            patch.object(LocalUpdates, "norms", lambda self: self._norms.clamp(max=THRESHOLD)),
        ):
            yield

    return plant()


def _rows_for_users() -> AbstractContextManager[Any]:
    """The rows of a user are users of their own, in one batch."""
    right = user_updates.make_updates

    def make_updates(*arguments: Any) -> LocalUpdates:
        updates = right(*arguments)
        rows = MODELS["users"].rows
        updates.updates = updates.updates * rows
        return updates

    return patch.object(loop, "make_updates", make_updates)


_EVERY = (
    Fault(
        "no_gradient_noise",
        "noise missing from the gradient",
        partial(_no_noise, "clipped_gradient"),
    ),
    Fault(
        "no_direction_noise",
        "noise missing from Online's direction",
        partial(_no_noise, "clipped_direction"),
        "clipped_direction",
    ),
    Fault(
        "no_count_noise",
        "noise missing from FixedQuantile's count",
        partial(_no_noise, "unclipped_count"),
        "unclipped_count",
    ),
    Fault("no_clip", "gradients not clipped", _no_clip),
    Fault(
        "no_direction_clip",
        "the direction's gradients not brought to norm 1",
        _no_direction_clip,
        "clipped_direction",
    ),
    Fault("unscaled_noise", "noise not scaled with C", _unscaled_noise),
    Fault("noise_of_the_mean", "noise divided by the batch size, then again", _noise_of_the_mean),
    Fault("same_noise", "each step adds the same noise", _same_noise),
    Fault(
        "shared_noise",
        "both queries of a step add the same noise",
        _shared_noise,
        "clipped_direction",
    ),
    Fault("one_number", "one random number for all coordinates", _one_number),
    Fault("small_norms", "gradient norms measured four times too small", _small_norms),
    Fault("repeated_examples", "each example four times in its batch", _repeated_examples),
    Fault("whole_batch", "batches not sampled", _whole_batch),
    Fault("same_batch", "each step takes the same batch", _same_batch),
    Fault("deviation_booked", "the ledger holds nu C in place of nu", _deviation_booked),
    Fault(
        "norms_of_other_masks",
        "norms from other dropout masks than the gradients",
        _norms_of_other_masks,
        model="dropout",
    ),
    Fault(
        "norms_of_one_use",
        "norms from a tied weight's first use only",
        _norms_of_one_use,
        model="tied",
    ),
    Fault(
        "views_added",
        "views summed, but clipped by the norm of their mean",
        _norms_of_the_mean_view,
        model="augmentations",
    ),
    Fault(
        "clipped_local_steps",
        "local steps clipped, and not the user's update",
        _clipped_local_steps,
        model="users",
    ),
    Fault(
        "rows_for_users",
        "each row of a user clipped by itself",
        _rows_for_users,
        model="users",
    ),
)
FAULTS = {fault.name: fault for fault in _EVERY}
