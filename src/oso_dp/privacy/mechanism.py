"""The mechanism: draws the batch, takes the sums, adds the noise, writes the ledger.

Everything a method learns about the training data passes through `Mechanism.release`. Sampling,
noise and ledger live in one object so that they cannot disagree: the batch is drawn by the sampling
scheme that the ledger holds, the noise is sensitivity times noise multiplier, and that multiplier
goes into the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.batch_rng import BatchRNG, NoiseSpec
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.queries import QUERIES, Query, Runs
from oso_dp.privacy.rng_sources import RandomSource, Seeded
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.unnoised_sums import PerExampleGradients, unnoised_sums

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


class Mechanism:
    """Answers queries about Poisson batches of one data set, for R independent runs.

    `noise_multiplier` is what the budget allows of a step: one whose queries together cost more
    (have less noise than one Gaussian sum with it) is refused. 0 means no budget.
    `randomness`: where sampling and noise come from; by default each run's own seeded streams.
    `device`: where the sums are taken. `piece`: how many examples of a batch go through the model
    at a time; None: all.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        examples: int,
        batch_size: int,
        noise_multiplier: float = 0.0,
        randomness: RandomSource | None = None,
        device: str | torch.device = "cpu",
        microbatch_size: int | None = None,
    ) -> None:
        if not 0 < batch_size <= examples:
            raise OsoError(
                f"batch_size {batch_size}: must be between 1 and the {examples} examples"
            )
        if not 0 <= noise_multiplier < math.inf:
            raise OsoError(f"noise multiplier {noise_multiplier}: must be 0 or above, and finite")
        if any("\0" in run_id for run_id in run_ids):  # it ends the identity in a stream's key
            raise OsoError("run_ids: a zero character is not allowed")
        if len(set(run_ids)) != len(run_ids):
            raise OsoError("run_ids: two runs with one identity would share their noise")
        self.examples = examples
        self.batch_size = batch_size  # expected; the realised size is private
        self.noise_multiplier = noise_multiplier
        self.sampling = PoissonSampling.of(batch_size, examples)
        self.random_numbers = BatchRNG(
            randomness or Seeded(), self.sampling, examples, torch.device(device)
        )
        self.microbatch_size = microbatch_size
        self.run_ids = list(run_ids)
        self.ledgers = [Ledger(self.sampling) for _ in run_ids]
        self._last_step = [0] * len(run_ids)

    def release(
        self,
        runs: slice,
        step: int,
        queries: Sequence[Query],
        gradients_of: Callable[[Runs, Tensor], PerExampleGradients],
    ) -> Answers:
        """Sanitized means, (sum + noise) / expected batch size, of these R runs of `run_ids`.

        By the query's key: [R, P], [R, P_g] for a query about a group of layers, or [R] if scalar.
        Each run has its own batch: `gradients_of` gets some of these runs, as an index of
        `run_ids`, and their indices, int64 [r, B] with B possibly 0, until all had their turn.
        Batches are padded, and what stands there gets no weight. On a CPU the sums do not depend on
        which runs are asked for together.
        `step` counts from 1 and may only grow (a stream is used once).
        """
        members = range(len(self.run_ids))[runs]
        if any(step <= self._last_step[run] for run in members):
            raise ValueError(f"step {step} was released before: its noise must not be used twice")
        if len({query.name for query in queries}) != len(queries):
            raise ValueError("two queries of one name would share their noise")
        self._check_budget(queries)
        for run in members:
            self._last_step[run] = step
            self.ledgers[run].record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries))
        totals = self._totals(runs, step, queries, gradients_of)
        noised = self._add_noise(totals, queries, runs, step)
        return {
            query.key: total / self.batch_size for query, total in zip(queries, noised, strict=True)
        }

    def keep(self, runs: Sequence[int]) -> None:
        """Go on with these runs only (the others have ended), renumbered from 0."""
        self.run_ids = [self.run_ids[run] for run in runs]
        self.ledgers = [self.ledgers[run] for run in runs]
        self._last_step = [self._last_step[run] for run in runs]

    def resume(self, ledgers: Sequence[Ledger], last_step: int) -> None:
        """Take up the books of an interrupted training; steps up to last_step stay closed."""
        for ledger in ledgers:
            ledger.check()
        whole = all(ledger.step_count == last_step for ledger in ledgers)
        schemes = [ledger.sampling for ledger in ledgers]
        if schemes != [self.sampling] * len(self.run_ids) or not whole:
            raise ValueError(f"these are not the ledgers of {last_step} steps of these runs")
        self.ledgers = list(ledgers)
        self._last_step = [max(last_step, closed) for closed in self._last_step]

    def _check_budget(self, queries: Sequence[Query]) -> None:
        for query in queries:
            # Sensitivities are decided in this room alone.
            if type(query) not in QUERIES:
                raise OsoError(f"query {query.name!r}: not one of oso_dp.privacy.queries")
            if not (query.noise_multiplier >= 0 and math.isfinite(query.noise_multiplier)):
                raise OsoError(f"query {query.name!r}: noise multiplier {query.noise_multiplier}")
        together = combined_noise_multiplier([query.noise_multiplier for query in queries])
        if together < self.noise_multiplier * (1 - 1e-9):
            raise OsoError(
                f"queries {', '.join(query.name for query in queries)}: their noise multiplier is "
                f"{together:g} together; the budget of a step asks for {self.noise_multiplier:g}"
            )

    def _totals(
        self,
        runs: slice,
        step: int,
        queries: Sequence[Query],
        gradients_of: Callable[[Runs, Tensor], PerExampleGradients],
    ) -> Sequence[Tensor]:
        """The exact sums of these runs, one for each query.

        Each example adds to a sum by itself alone, so a sum may be taken piece by piece.
        """
        members = range(len(self.run_ids))[runs]
        batches = self.random_numbers.batches_by_width(self.run_ids[runs], step)
        parts = []
        for batch in batches:
            group = _select_members(members, batch.places)
            parts.append(
                _concatenate(
                    unnoised_sums(
                        queries,
                        group,
                        gradients_of(group, batch.indices[:, microbatch_size]),
                        batch.present[:, microbatch_size],
                    )
                    for microbatch_size in self._pieces(batch.indices)
                )
            )
        if len(batches) == 1:
            return parts[0]
        order = torch.tensor([place for batch in batches for place in batch.places]).argsort()
        return [torch.cat(sums)[order] for sums in zip(*parts, strict=True)]

    def _pieces(self, indices: Tensor) -> list[slice]:
        """Places of a batch, indices [R, B], that go through the model one after the other."""
        width = indices.shape[1]
        microbatch_size = self.microbatch_size or max(1, width)
        return [slice(at, at + microbatch_size) for at in range(0, max(1, width), microbatch_size)]

    def _add_noise(
        self, totals: Sequence[Tensor], queries: Sequence[Query], runs: slice, step: int
    ) -> list[Tensor]:
        """All sums of a step get their noise together; those that ask for none stay exact."""
        noisy = [place for place, query in enumerate(queries) if query.noise_multiplier > 0]
        answers = list(totals)
        noised = self.random_numbers.add_noise(
            self.run_ids[runs],
            step,
            [totals[place] for place in noisy],
            [_noise_for(queries[place], runs, totals[place]) for place in noisy],
        )
        for place, total in zip(noisy, noised, strict=True):
            answers[place] = total
        return answers


def _select_members(members: range, places: list[int]) -> Runs:
    """Of these runs those at these places; all of them as a slice, which copies nothing."""
    if len(places) == len(members):
        return slice(members.start, members.stop)
    return [members[place] for place in places]


def _concatenate(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """The sums of a batch from those of its pieces, into the first piece's."""
    remaining = iter(parts)
    sums = next(remaining)
    for part in remaining:
        sums = [total.add_(more) for total, more in zip(sums, part, strict=True)]
    return sums


def _noise_for(query: Query, runs: slice, total: Tensor) -> NoiseSpec:
    # The multiplier is part of the purpose: two answers that differ in it alone would give the
    # exact sum away. Seven digits, because the last ones differ between machines.
    purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"
    deviation = query.noise_multiplier * query.sensitivity(runs)
    exact = torch.as_tensor(deviation, dtype=torch.float64, device=total.device)
    return NoiseSpec(purpose, exact.expand(len(total)))
