"""The mechanism: draws the batch, takes the sums, adds the noise, writes the ledger.

Everything a method learns about the training data passes through `Mechanism.release`. Sampling,
noise and ledger live in one object so that they cannot disagree: the batch is drawn by the sampling
scheme that the ledger holds, the noise is sensitivity times noise multiplier, and that multiplier
goes into the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.groups import Group
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_split import combined_noise_multiplier
from oso_dp.privacy.queries import QUERIES, Query
from oso_dp.privacy.random_numbers import RandomNumbers
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.streams import Randomness, Seeded


class PerExampleGradients(Protocol):
    """What the gradient code offers for one batch of B examples and P parameters.

    Or for a batch of each of R runs: then all shapes have a leading run axis R.
    """

    def norms(self) -> Tensor:
        """2-norms of the per-example gradients, [B]; inf for one that must not contribute."""

    def layer_norms(self) -> Mapping[str, Tensor]:
        """The same of each layer's part, by the layer's name, each [B]."""

    def layer_sizes(self) -> Mapping[str, int]:
        """Each layer's number of parameters."""

    def weighted_sums(self, weights: Tensor, layers: Sequence[str] | None = None) -> Tensor:
        """sum_i weights[j, i] g_i for each row j of weights [J, B], as [J, P].

        With `layers`, of these layers' parts only, in this order.
        """

    def plain_sums(self, present: Tensor | None = None) -> Tensor:
        """sum_i g_i over those that are present (bool [B]; None: all), [P]."""


class Mechanism:
    """Answers queries about Poisson batches of one data set, for R independent runs.

    `noise_multiplier` is the price of a step that was budgeted: a step whose queries together cost
    more (have less noise than one Gaussian sum with it) is refused. 0 means no budget.
    `randomness`: where sampling and noise come from; by default each run's own seeded streams.
    `device`: where the sums are taken.
    """

    def __init__(
        self,
        run_ids: Sequence[str],
        examples: int,
        batch_size: int,
        noise_multiplier: float = 0.0,
        randomness: Randomness | None = None,
        device: str | torch.device = "cpu",
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
        self.sampling = PoissonSampling(batch_size / examples)
        self.random_numbers = RandomNumbers(
            randomness or Seeded(), self.sampling, examples, torch.device(device)
        )
        self.run_ids = list(run_ids)
        self.ledgers = [Ledger(self.sampling) for _ in run_ids]
        self._last_step = [0] * len(run_ids)

    def release(
        self,
        runs: int | slice,
        step: int,
        queries: Sequence[Query],
        gradients_of: Callable[[Tensor], PerExampleGradients],
    ) -> dict[str, Tensor]:
        """Sanitized means by query name: (sum + noise) / expected batch size.

        For one run (an int, counted within run_ids): [P], or [P_g] for a query about a group of
        layers, or [] if scalar. `gradients_of` gets the indices of its batch, int64 [B] with B
        possibly 0.
        For several (a slice of run_ids): all of that with a leading axis R. Each run has its own
        batch; the shorter ones' indices [R, B] are padded, and what stands there gets no weight.
        `step` counts from 1 and may only grow (a stream is used once).
        """
        each = range(len(self.run_ids))[runs] if isinstance(runs, slice) else [runs]
        if any(step <= self._last_step[run] for run in each):
            raise ValueError(f"step {step} was released before: its noise must not be used twice")
        if len({query.name for query in queries}) != len(queries):
            raise ValueError("two queries of one name would share their noise")
        self._check_price(queries)
        for run in each:
            self._last_step[run] = step
            self.ledgers[run].record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries))
        if isinstance(runs, slice):
            indices, present = self.random_numbers.batches(self.run_ids[runs], step)
        else:
            indices, present = self.random_numbers.batch(self.run_ids[runs], step), None
        gradients = gradients_of(indices)
        answers = {}
        for query, total in zip(queries, _sums(queries, runs, gradients, present), strict=True):
            scales = _coordinate_scales(query, gradients)
            if scales is None:
                noisy = self._add_noise(total, query, runs, step)
            else:  # the vector that was clipped is the scaled one
                noisy = self._add_noise(total / scales, query, runs, step) * scales
            answers[query.name] = noisy / self.batch_size
        return answers

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

    def _check_price(self, queries: Sequence[Query]) -> None:
        for query in queries:
            if type(query) not in QUERIES:  # sensitivities are decided in this room alone
                raise OsoError(f"query {query.name!r}: not one of oso_dp.privacy.queries")
            if not (query.noise_multiplier >= 0 and math.isfinite(query.noise_multiplier)):
                raise OsoError(f"query {query.name!r}: noise multiplier {query.noise_multiplier}")
        together = combined_noise_multiplier([query.noise_multiplier for query in queries])
        if together < self.noise_multiplier * (1 - 1e-9):
            raise OsoError(
                f"queries {', '.join(query.name for query in queries)}: their noise multiplier is "
                f"{together:g} together; the budget of a step asks for {self.noise_multiplier:g}"
            )

    def _add_noise(self, total: Tensor, query: Query, runs: int | slice, step: int) -> Tensor:
        if query.noise_multiplier == 0:
            return total
        # The multiplier is part of the purpose: two answers that differ in it alone would give the
        # exact sum away. Seven digits, because the last ones differ between machines.
        purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"
        if isinstance(runs, slice):
            noise = self.random_numbers.normals(self.run_ids[runs], purpose, step, total.shape[1:])
        else:
            noise = self.random_numbers.normals([self.run_ids[runs]], purpose, step, total.shape)[0]
        noise *= query.noise_multiplier * _columns(query.sensitivity(runs), noise.dim())
        # Added in float64: a sum of two float32 numbers would show which noise was possible.
        return noise.add_(total).to(total.dtype)


def _columns(values: float | Tensor, dims: int) -> float | Tensor:
    """One value per run, [R], to be multiplied with [R, ...] of so many dimensions."""
    return values.view(-1, *[1] * (dims - 1)) if isinstance(values, Tensor) else values


def _sums(
    queries: Sequence[Query],
    runs: int | slice,
    gradients: PerExampleGradients,
    present: Tensor | None = None,
) -> list[Tensor]:
    """The exact sums, in the order of the queries; those of one group are taken in one pass.

    Examples that are not `present` (bool [R, B]) have no weight.
    """
    if not any(query.needs_norms for query in queries):
        return [gradients.plain_sums(present) for _ in queries]
    weights = [query.weights(_norms(query.group, gradients), runs) for query in queries]
    if present is not None:
        weights = [each.masked_fill(~present, 0.0) for each in weights]
    sums: dict[int, Tensor] = {
        i: each.sum(dim=-1) for i, each in enumerate(weights) if queries[i].scalar
    }
    for group in dict.fromkeys(query.group for query in queries):
        members = [i for i, q in enumerate(queries) if q.group == group and not q.scalar]
        if members:
            stacked = torch.stack([weights[i] for i in members], dim=-2)
            layers = None if group is None else group.layers
            found = gradients.weighted_sums(stacked, layers).unbind(dim=-2)
            sums.update(zip(members, found, strict=True))
    return [sums[i] for i in range(len(queries))]


def _norms(group: Group | None, gradients: PerExampleGradients) -> Tensor:
    """The norms that a query weighs by: of (v_1 / alpha_1, ...) for a group, [B]."""
    norms = gradients.norms()
    if group is None:
        return norms
    layer_norms = gradients.layer_norms()
    scaled = [
        layer_norms[layer].double() / scale
        for layer, scale in zip(group.layers, group.layer_scales, strict=True)
    ]
    return torch.linalg.vector_norm(torch.stack(scaled), dim=0).to(norms.dtype)


def _coordinate_scales(query: Query, gradients: PerExampleGradients) -> Tensor | None:
    """alpha of each coordinate of a group's sum, [P_g]; None where there are no scales."""
    group = query.group
    if query.scalar or group is None or group.scales is None:
        return None
    sizes = torch.tensor([gradients.layer_sizes()[layer] for layer in group.layers])
    scales = torch.tensor(group.scales).repeat_interleave(sizes)
    return scales.to(gradients.norms().device)
