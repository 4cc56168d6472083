"""Faults to plant into the running code, one at a time: the audit must see each.

Each replaces one function of the privacy room or of the gradient code while its context lasts. The
ledger stays as the faulty code writes it: the claim is what such code would have claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from oso_dp.audit.canaries import THRESHOLD
from oso_dp.audit.findings import Fault
from oso_dp.gradients import BatchGradients
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, Query
from oso_dp.privacy.random_numbers import RandomNumbers
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.streams import Seeded


def _no_noise(name: str) -> AbstractContextManager[Any]:
    right = Mechanism._add_noise

    def add_noise(self: Mechanism, total: Tensor, query: Query, runs: slice, step: int) -> Tensor:
        return total if query.name == name else right(self, total, query, runs, step)

    return patch.object(Mechanism, "_add_noise", add_noise)


def _noise_of_the_mean() -> AbstractContextManager[Any]:
    right = Mechanism._add_noise

    def add_noise(self: Mechanism, total: Tensor, query: Query, runs: slice, step: int) -> Tensor:
        return total + (right(self, total, query, runs, step) - total) / self.batch_size

    return patch.object(Mechanism, "_add_noise", add_noise)


def _same_noise() -> AbstractContextManager[Any]:
    right = Seeded.normals

    def normals(self: Seeded, run_ids: Sequence[str], purpose: str, step: int, *rest: Any) -> Any:
        return right(self, run_ids, purpose, 1, *rest)

    return patch.object(Seeded, "normals", normals)


def _shared_noise() -> AbstractContextManager[Any]:
    right = Seeded.normals

    def normals(self: Seeded, run_ids: Sequence[str], purpose: str, *rest: Any) -> Any:
        return right(self, run_ids, "noise", *rest)

    return patch.object(Seeded, "normals", normals)


def _one_number() -> AbstractContextManager[Any]:
    right = Seeded.normals

    def normals(
        self: Seeded, run_ids: Sequence[str], purpose: str, step: int, shape: tuple, threads: int
    ) -> np.ndarray:
        each = right(self, run_ids, purpose, step, (), threads)
        return np.stack([np.full(shape, one) for one in each])

    return patch.object(Seeded, "normals", normals)


def _no_clip(kind: type[ClippedGradient] | type[ClippedDirection]) -> AbstractContextManager[Any]:
    def weights(self: Query, norms: Tensor, runs: slice) -> Tensor:
        return norms.isfinite().to(norms.dtype)

    return patch.object(kind, "weights", weights)


def _unscaled_noise() -> AbstractContextManager[Any]:
    return patch.object(ClippedGradient, "sensitivity", lambda self, runs: 1.0)


def _small_norms() -> AbstractContextManager[Any]:
    right = BatchGradients.norms

    def norms(self: BatchGradients) -> Tensor:
        # In training's precision alone: else the start of a training would refuse it.
        return right(self) / (4 if self.flat.dtype == torch.float32 else 1)

    return patch.object(BatchGradients, "norms", norms)


def _repeated_examples() -> AbstractContextManager[Any]:
    right = RandomNumbers.batches

    def batches(self: RandomNumbers, run_ids: Sequence[str], step: int) -> tuple[Tensor, Tensor]:
        indices, present = right(self, run_ids, step)
        return indices.repeat(1, 4), present.repeat(1, 4)

    return patch.object(RandomNumbers, "batches", batches)


def _whole_batch() -> AbstractContextManager[Any]:
    return patch.object(PoissonSampling, "draw", lambda self, examples, words: np.arange(examples))


def _same_batch() -> AbstractContextManager[Any]:
    right = RandomNumbers.batches
    return patch.object(
        RandomNumbers, "batches", lambda self, run_ids, step: right(self, run_ids, 1)
    )


def _deviation_booked() -> AbstractContextManager[Any]:
    right = Ledger.record

    def record(self: Ledger, queries: tuple[SumQuery, ...]) -> None:
        booked = [
            SumQuery(query.name, query.noise_multiplier * THRESHOLD)
            if query.name == "clipped_gradient"
            else query
            for query in queries
        ]
        right(self, tuple(booked))

    return patch.object(Ledger, "record", record)


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
    Fault("no_clip", "gradients not clipped", partial(_no_clip, ClippedGradient)),
    Fault(
        "no_direction_clip",
        "the direction's gradients not brought to norm 1",
        partial(_no_clip, ClippedDirection),
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
)
FAULTS = {fault.name: fault for fault in _EVERY}
