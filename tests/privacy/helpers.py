"""Per-example gradients that are given, and one run's view of what is made for several."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec
from oso_dp.privacy.mechanism import Mechanism, unnoised_sums
from oso_dp.privacy.queries import Query
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.privacy.sampling import PoissonSampling


class Given:
    """The gradients [R, B, P] stand in a tensor."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def norms(self) -> Tensor:
        return self.gradients.norm(dim=2)

    def weighted_sums(self, weights: Tensor, layers: None = None) -> Tensor:
        return weights @ self.gradients

    def plain_sums(self, present: Tensor) -> Tensor:
        return (present[..., None] * self.gradients).sum(dim=1)


def released(
    mechanism: Mechanism,
    run: int,
    step: int,
    queries: Sequence[Query],
    gradients_of: Callable[[Tensor], Any],
) -> dict[str, Tensor]:
    """The answers to one run, by the query's name, without the run axis."""
    one = slice(run, run + 1)
    answers = mechanism.release(one, step, queries, lambda runs, batch: gradients_of(batch))
    return {query.name: answers[query.key][0] for query in queries}


def batch_of(random_numbers: BatchRNG, run_id: str, step: int) -> Tensor:
    """The indices of one run's batch, [B], without what pads it."""
    indices, present = random_numbers.batches([run_id], step)
    return indices[0][present[0]]


def normals_of(
    random_numbers: BatchRNG, run_ids: Sequence[str], purpose: str, step: int, *shape: int
) -> Tensor:
    """What it adds to zeros for a deviation of 1, float64 [R, *shape]."""
    zeros = torch.zeros(len(run_ids), *shape, dtype=torch.float64)
    noise = NoiseSpec(purpose, torch.ones(len(run_ids)))
    (noised,) = random_numbers.add_noise(run_ids, step, [zeros], [noise])
    return noised


def seeded_normals(
    run_ids: Sequence[str], purpose: str, step: int, shape: tuple[int, ...], threads: int = 1
) -> np.ndarray:
    """The CPU's numbers of these streams, float64 [R, *shape]."""
    draws = BatchRNG(Seeded(), PoissonSampling(0.5), 10, torch.device("cpu"))
    with patch.object(torch, "get_num_threads", lambda: threads):
        return normals_of(draws, run_ids, purpose, step, *shape).numpy()


def sums_of_one(queries: Sequence[Query], gradients: Any) -> list[Tensor]:
    """The exact sums of the first run, all of whose examples are there: [P] each."""
    present = torch.ones(gradients.norms().shape, dtype=torch.bool)
    return [total[0] for total in unnoised_sums(queries, slice(0, 1), gradients, present)]


def always_empty(mechanism: Mechanism) -> Mechanism:
    """Its batches hold nobody from now on, so that its answers are noise alone."""

    def draw(run_ids: Sequence[str], step: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(np.arange(0), np.arange(0))] * len(run_ids)

    mechanism.random_numbers._draw = draw  # type: ignore[method-assign]
    return mechanism
