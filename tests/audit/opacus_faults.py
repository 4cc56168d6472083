"""Faults to plant into the drop-in for Opacus, one at a time: its audit must see each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from torch import Tensor

from oso_dp.audit.run_audit import Fault
from oso_dp.opacus.mechanism import Noise
from oso_dp.opacus.method_adapter import MethodAdapter
from oso_dp.opacus.per_sample_gradients import PerSampleGradients


def _no_noise(query: str) -> AbstractContextManager[Any]:
    right = Noise.__call__

    def noise(self: Noise, name: str, deviation: float, like: Sequence[Tensor]) -> Tensor:
        return right(self, name, 0.0 if name == query else deviation, like)

    return patch.object(Noise, "__call__", noise)


@contextmanager
def _gradients_noise_for_both() -> Iterator[None]:
    """nu_g, in place of nu_q, for the direction; the ledger says nu_q."""
    noise, queries = Noise.__call__, MethodAdapter.queries
    gradient: list[float] = [0.0]

    def asked(self: MethodAdapter, noise_multiplier: float) -> Any:
        every = queries(self, noise_multiplier)
        gradient[0] = every[0].noise_multiplier
        return every

    def drawn(self: Noise, name: str, deviation: float, like: Sequence[Tensor]) -> Tensor:
        return noise(self, name, gradient[0] if name == "clipped_direction" else deviation, like)

    with ExitStack() as stack:
        stack.enter_context(patch.object(MethodAdapter, "queries", asked))
        stack.enter_context(patch.object(Noise, "__call__", drawn))
        yield


@contextmanager
def _threshold_of_norms() -> Iterator[None]:
    """C becomes the median of the batch's norms, as they are."""
    norms, learn = PerSampleGradients.norms, MethodAdapter.adapt_hyperparameters
    last: list[Tensor] = []

    def measured(self: PerSampleGradients) -> Tensor:
        values = norms(self)
        last[:] = [values[values.isfinite()]]
        return values

    def learned(self: MethodAdapter, answers: Any) -> None:
        learn(self, answers)
        if len(last[0]):
            self.state.threshold = last[0].median()[None].to(self.state.threshold)

    with ExitStack() as stack:
        stack.enter_context(patch.object(PerSampleGradients, "norms", measured))
        stack.enter_context(patch.object(MethodAdapter, "adapt_hyperparameters", learned))
        yield


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
    Fault("threshold_of_norms", "C follows norms that nobody sanitized", _threshold_of_norms),
)
FAULTS = {fault.name: fault for fault in _EVERY}
# At most the root of two of the noise is missing: too little for the bounds of `oso audit`.
SHARED_MULTIPLIER = Fault(
    "shared_multiplier", "nu_g for both sums", _gradients_noise_for_both, "clipped_direction"
)
