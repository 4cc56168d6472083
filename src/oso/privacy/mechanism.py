"""The mechanism: draws the batch, takes the sums, adds the noise, writes the ledger.

Everything a method learns about the training data passes through `Mechanism.release`. Sampling,
noise and ledger live in one object so that they cannot disagree: the batch is a Poisson sample
(each example with probability q = B/n, independently), the noise is sensitivity times noise
multiplier, and the same two numbers go into the ledger. Neighbours differ by one example added or
removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from oso.errors import OsoError
from oso.privacy.joint import combined_noise_multiplier
from oso.privacy.ledger import Ledger, SumQuery
from oso.privacy.queries import QUERIES, Query
from oso.privacy.streams import stream


class PerExampleGradients(Protocol):
    """What the gradient code offers for one batch of B examples and P parameters."""

    def norms(self) -> Tensor:
        """2-norms of the per-example gradients, [B]."""

    def weighted_sums(self, weights: Tensor) -> Tensor:
        """sum_i weights[j, i] g_i for each row j of weights [J, B], as [J, P]."""

    def plain_sum(self) -> Tensor:
        """sum_i g_i, [P]."""


class Mechanism:
    """Answers queries about Poisson batches of one data set, for R independent runs.

    `noise_multiplier` is the price of a step that was budgeted: a step whose queries together cost
    more (have less noise than one Gaussian sum with it) is refused. 0 means no budget.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        examples: int,
        batch_size: int,
        noise_multiplier: float = 0.0,
    ) -> None:
        if not 0 < batch_size <= examples:
            raise OsoError(
                f"batch_size {batch_size}: must be between 1 and the {examples} examples"
            )
        if len(set(run_ids)) != len(run_ids):
            raise OsoError("run_ids: two runs with one identity would share their noise")
        self.examples = examples
        self.batch_size = batch_size  # expected; the realised size is private
        self.noise_multiplier = noise_multiplier
        self.run_ids = list(run_ids)
        self.ledgers = [Ledger(batch_size / examples) for _ in run_ids]
        self._last_step = [0] * len(run_ids)

    def release(
        self,
        run: int,
        step: int,
        queries: Sequence[Query],
        gradients_of: Callable[[Tensor], PerExampleGradients],
    ) -> dict[str, Tensor]:
        """Sanitized means by query name: (sum + noise) / expected batch size; [P], or [] if scalar.

        `run` counts within run_ids; `step` counts from 1 and may only grow (a stream is used once).
        `gradients_of` gets the indices of the batch, int64 [B] with B possibly 0.
        """
        if step <= self._last_step[run]:
            raise ValueError(f"step {step} was released before: its noise must not be used twice")
        if len({query.name for query in queries}) != len(queries):
            raise ValueError("two queries of one name would share their noise")
        self._check_price(queries)
        self._last_step[run] = step
        self.ledgers[run].record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries))
        sums = _sums(queries, run, gradients_of(self._batch(run, step)))
        return {
            query.name: self._add_noise(total, query, run, step) / self.batch_size
            for query, total in zip(queries, sums, strict=True)
        }

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with these runs only (the others have ended), renumbered from 0."""
        self.run_ids = [self.run_ids[run] for run in runs]
        self.ledgers = [self.ledgers[run] for run in runs]
        self._last_step = [self._last_step[run] for run in runs]

    def resume(self, ledgers: Sequence[Ledger], last_step: int) -> None:
        """Take up the books of an interrupted training; steps up to last_step stay closed."""
        rate = self.batch_size / self.examples
        for ledger in ledgers:
            ledger.check()
        whole = all(sum(count for _, count in ledger.steps) == last_step for ledger in ledgers)
        if [ledger.sampling_rate for ledger in ledgers] != [rate] * len(self.run_ids) or not whole:
            raise ValueError(f"these are not the ledgers of {last_step} steps of these runs")
        self.ledgers = list(ledgers)
        self._last_step = [max(last_step, closed) for closed in self._last_step]

    def _check_price(self, queries: Sequence[Query]) -> None:
        for query in queries:
            if type(query) not in QUERIES:  # sensitivities are decided in this room alone
                raise OsoError(f"query {query.name!r}: not one of oso.privacy.queries")
            if not (query.noise_multiplier >= 0 and math.isfinite(query.noise_multiplier)):
                raise OsoError(f"query {query.name!r}: noise multiplier {query.noise_multiplier}")
        together = combined_noise_multiplier([query.noise_multiplier for query in queries])
        if together < self.noise_multiplier * (1 - 1e-9):
            raise OsoError(
                f"queries {', '.join(query.name for query in queries)}: their noise multiplier is "
                f"{together:g} together; the budget of a step asks for {self.noise_multiplier:g}"
            )

    def _batch(self, run: int, step: int) -> Tensor:
        draws = stream(self.run_ids[run], "sampling", step).random(self.examples)
        return torch.from_numpy(np.flatnonzero(draws < self.batch_size / self.examples))

    def _add_noise(self, total: Tensor, query: Query, run: int, step: int) -> Tensor:
        if query.noise_multiplier == 0:
            return total
        # The multiplier is part of the purpose: two answers that differ in it alone would give the
        # exact sum away. Seven digits, because the last ones differ between machines.
        purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"
        generator = stream(self.run_ids[run], purpose, step)
        noise = torch.from_numpy(np.asarray(generator.standard_normal(total.shape)))
        deviation = query.noise_multiplier * query.sensitivity(run)
        # Added in float64: a sum of two float32 numbers would show which noise was possible.
        return (total.double() + deviation * noise.to(total.device)).to(total.dtype)


def _sums(queries: Sequence[Query], run: int, gradients: PerExampleGradients) -> list[Tensor]:
    """The exact sums, in the order of the queries; all vector sums are taken in one pass."""
    if not any(query.needs_norms for query in queries):
        return [gradients.plain_sum() for _ in queries]
    weights = [query.weights(gradients.norms(), run) for query in queries]
    vectors = [w for query, w in zip(queries, weights, strict=True) if not query.scalar]
    sums: Iterator[Tensor] = iter(gradients.weighted_sums(torch.stack(vectors)) if vectors else ())
    return [
        w.sum() if query.scalar else next(sums) for query, w in zip(queries, weights, strict=True)
    ]
