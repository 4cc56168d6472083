"""The Gaussian mechanism on Poisson batches: draws the batch, computes the sums, adds the noise and
records the release in the ledger.

All that a method learns about the training data passes through `Mechanism.release`. Sampling, noise
and ledger are in one object so that they cannot disagree: the batch is drawn by the sampling scheme
in the ledger, the noise is sensitivity times noise multiplier, and the ledger has that multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.batch_rng import Batches, BatchRNG, Microbatches, NoiseSpec
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import check_noise_multiplier, combined_noise_multiplier
from oso_dp.privacy.process_group import ProcessGroup
from oso_dp.privacy.promise import EXAMPLE, Unit
from oso_dp.privacy.queries import QUERIES, Query, Runs
from oso_dp.privacy.rng_sources import RandomSource, Seeded
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.unnoised_sums import PerExampleGradients, unnoised_sums

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers


class Mechanism:
    """Answers queries about Poisson batches of one data set, for R independent runs.

    Args:
        run_ids: distinct identities; the seeded streams of a run depend on its identity.
        records: n, the number of records: examples, or users.
        batch_size: B, the expected batch size; 1 to n.
        noise_multiplier: the budget of a step. Queries that together have less noise than one
            Gaussian sum with it are refused. 0 means no budget.
        randomness: the source of sampling and noise. Default: seeded by run id.
        device: where the sums are computed.
        microbatch_size: records per forward pass, at most. Default: the complete batch; of data
            that need protection (any randomness but `Seeded`), `MAX_MICROBATCH`.
        group: processes with a mechanism each, whose sums are added up. Default: this one.
        unit: what a record is.

    Raises:
        OsoError: for a value out of range.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        records: int,
        batch_size: int,
        noise_multiplier: float = 0.0,
        randomness: RandomSource | None = None,
        device: str | torch.device = "cpu",
        microbatch_size: int | None = None,
        group: ProcessGroup | None = None,
        unit: Unit = EXAMPLE,
    ) -> None:
        if not 0 < batch_size <= records:
            raise OsoError(
                f"batch_size: {batch_size}; must be >= 1 and <= the number of {unit.plural}, "
                f"{records}"
            )
        if not 0 <= noise_multiplier < math.inf:
            raise OsoError(f"noise_multiplier: {noise_multiplier}; must be >= 0 and finite")
        if any("\0" in run_id for run_id in run_ids):  # the separator in a stream's key
            raise OsoError("run_ids: must not contain a null character")
        if len(set(run_ids)) != len(run_ids):
            raise OsoError("run_ids: must be distinct, since equal ids would share their noise")
        self.records = records
        self.batch_size = batch_size  # expected; the realised size is private
        self.noise_multiplier = noise_multiplier
        self.sampling = PoissonSampling.of(batch_size, records, unit)
        randomness, group = randomness or Seeded(), group or ProcessGroup()
        self.microbatch_size = microbatch_size
        microbatches = None
        if not isinstance(randomness, Seeded):
            rate = self.sampling.rate
            expected = rate * group.count_records(records)
            microbatches = Microbatches.of(expected, rate, microbatch_size)
            self.microbatch_size = microbatches.size
        self.random_numbers = BatchRNG(
            randomness, self.sampling, records, torch.device(device), group, microbatches
        )
        self.run_ids = list(run_ids)
        self.ledgers = [Ledger(self.sampling) for _ in run_ids]
        self._last_step = [0] * len(run_ids)
        # Prefetched batches of the next step: run ids, step, batches.
        self._ahead: tuple[tuple[str, ...], int, list[Batches]] | None = None

    def release(
        self,
        runs: slice,
        step: int,
        queries: Sequence[Query],
        gradients_of: Callable[[Runs, Tensor], PerExampleGradients],
        prefetch: Callable[[Tensor], None] | None = None,
    ) -> Answers:
        """Sanitized means, (sum + noise) / expected batch size, of R runs.

        On a CPU, the result of a run does not depend on the other runs.

        Args:
            runs: R of `run_ids`, each with a separate batch.
            step: from 1; must increase, since each stream is used once.
            queries: with distinct names.
            gradients_of: computes the gradient of each record; called with some of the runs, as
                an index of `run_ids`, and indices of records, int64 [r, B], where B may be 0.
                Batches are padded; padding gets no weight.
            prefetch: called with the indices of the next step's first microbatch, before the
                gradients of this step are computed.

        Returns:
            By the query's key: [R, P], [R, P_g] for a layer group, or [R] for a scalar query.

        Raises:
            ValueError: for a step that was released before.
            OsoError: for queries that `check_queries` refuses.
        """
        members = range(len(self.run_ids))[runs]
        if any(step <= self._last_step[run] for run in members):
            raise ValueError(f"step: {step}; was released before, its noise must not be reused")
        self.check_queries(queries)
        for run in members:
            self._last_step[run] = step
            self.ledgers[run].record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries))
        batches = self._draw_batches(runs, step)
        if prefetch is not None:
            ahead = self._draw_batches(runs, step + 1)
            self._ahead = tuple(self.run_ids[runs]), step + 1, ahead
            prefetch(ahead[0].indices[:, self._microbatches(ahead[0].indices)[0]])
        totals = self._totals(runs, batches, queries, gradients_of)
        is_all = len(members) == len(self.run_ids)
        if self.random_numbers.is_on_accelerator and is_all and self._ahead is None:
            # While the device is still computing these sums.
            self._ahead = tuple(self.run_ids[runs]), step + 1, self._draw_batches(runs, step + 1)
        noised = self._add_noise(totals, queries, runs, step)
        noised = self.random_numbers.group.all_reduce(noised)
        return {
            query.key: total / self.batch_size for query, total in zip(queries, noised, strict=True)
        }

    def keep(self, runs: Sequence[int]) -> None:
        """Continue with these runs only, renumbered from 0; the others have ended."""
        self.run_ids = [self.run_ids[run] for run in runs]
        self.ledgers = [self.ledgers[run] for run in runs]
        self._last_step = [self._last_step[run] for run in runs]

    def resume(self, ledgers: Sequence[Ledger], last_step: int) -> None:
        """Continue an interrupted training with its ledgers; steps up to last_step stay closed."""
        for ledger in ledgers:
            ledger.check()
        is_complete = all(ledger.step_count == last_step for ledger in ledgers)
        schemes = [ledger.sampling for ledger in ledgers]
        if schemes != [self.sampling] * len(self.run_ids) or not is_complete:
            raise ValueError(f"ledgers: must be those of {last_step} steps of these runs")
        self.ledgers = list(ledgers)
        self._last_step = [max(last_step, step) for step in self._last_step]

    def check_queries(self, queries: Sequence[Query]) -> None:
        """OsoError for queries of unknown cost or beyond the budget, and for equal names."""
        if not isinstance(queries, tuple | list) or not queries:
            raise OsoError(f"queries: {type(queries).__name__}; must be a tuple of queries")
        for query in queries:
            # Sensitivities are decided in this package alone.
            if type(query) not in QUERIES:
                name = query.name if isinstance(query, Query) else query
                raise OsoError(
                    f"query {name!r}: {type(query).__name__}; must be a class of "
                    "oso_dp.privacy.queries"
                )
            # As the ledger's: an epsilon must be known for each step that is taken.
            check_noise_multiplier(
                f"query {query.name!r}: noise_multiplier", query.noise_multiplier
            )
        if len({query.name for query in queries}) != len(queries):
            raise OsoError("queries: names must be distinct, since equal ones would share noise")
        combined = combined_noise_multiplier([query.noise_multiplier for query in queries])
        if combined < self.noise_multiplier * (1 - ROUNDING):
            raise OsoError(
                f"queries {', '.join(query.name for query in queries)}: combined noise multiplier "
                f"{combined:g}; must be >= the step's, {self.noise_multiplier:g}"
            )

    def _draw_batches(self, runs: slice, step: int) -> list[Batches]:
        """The batches of these runs at this step: those drawn ahead, or new ones."""
        drawn, self._ahead = self._ahead, None
        if drawn is not None and drawn[:2] == (tuple(self.run_ids[runs]), step):
            return drawn[2]
        return self.random_numbers.batches_by_width(self.run_ids[runs], step)

    def _totals(
        self,
        runs: slice,
        batches: Sequence[Batches],
        queries: Sequence[Query],
        gradients_of: Callable[[Runs, Tensor], PerExampleGradients],
    ) -> Sequence[Tensor]:
        """The sums of these runs without noise, one per query.

        A record's contribution does not depend on the others, so microbatches can be added up.
        """
        members = range(len(self.run_ids))[runs]
        by_batch = []
        for batch in batches:
            group = _select_members(members, batch.members)
            by_batch.append(
                _add_up(
                    unnoised_sums(
                        queries,
                        group,
                        gradients_of(group, batch.indices[:, microbatch]),
                        batch.present[:, microbatch],
                    )
                    for microbatch in self._microbatches(batch.indices)
                )
            )
        if len(batches) == 1:
            return by_batch[0]
        order = torch.tensor([member for batch in batches for member in batch.members]).argsort()
        return [torch.cat(sums)[order] for sums in zip(*by_batch, strict=True)]

    def _microbatches(self, indices: Tensor) -> list[slice]:
        """The columns of each microbatch of a batch, indices [R, B]."""
        width = max(1, indices.shape[1])
        size = self.microbatch_size or width
        return [slice(start, start + size) for start in range(0, width, size)]

    def _add_noise(
        self, totals: Sequence[Tensor], queries: Sequence[Query], runs: slice, step: int
    ) -> list[Tensor]:
        """Add noise to all sums of a step at once, except to those without noise."""
        noisy = [index for index, query in enumerate(queries) if query.noise_multiplier > 0]
        answers = list(totals)
        noised = self.random_numbers.add_noise(
            self.run_ids[runs],
            step,
            [totals[index] for index in noisy],
            [_noise_for(queries[index], runs, totals[index]) for index in noisy],
        )
        for index, total in zip(noisy, noised, strict=True):
            answers[index] = total
        return answers


def _select_members(members: range, selected: list[int]) -> Runs:
    """The members at these positions; a slice, which avoids copies, if these are all."""
    if len(selected) == len(members):
        return slice(members.start, members.stop)
    return [members[index] for index in selected]


def _add_up(by_microbatch: Iterable[list[Tensor]]) -> list[Tensor]:
    """The sums of a batch from those of its microbatches.

    Added up in float64: in float32, each of many additions would round by a part of the sum so far,
    which a record may change.
    """
    remaining = iter(by_microbatch)
    totals = next(remaining)
    dtypes = [total.dtype for total in totals]
    for further in remaining:
        totals = [total.double() for total in totals]  # the first ones; the others are already
        totals = [total.add_(summand) for total, summand in zip(totals, further, strict=True)]
    return [total.to(dtype) for total, dtype in zip(totals, dtypes, strict=True)]


def _noise_for(query: Query, runs: slice, total: Tensor) -> NoiseSpec:
    # The multiplier is part of the purpose: with equal noise, two answers that differ in it alone
    # would reveal the exact sum. Seven digits, because the last ones differ between machines.
    purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"
    deviation = query.noise_multiplier * query.sensitivity(runs)
    exact = torch.as_tensor(deviation, dtype=torch.float64, device=total.device)
    return NoiseSpec(purpose, exact.expand(len(total)))
