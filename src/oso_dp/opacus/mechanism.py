"""From exact sums of one logical batch to answers: ledger, noise, division by the expected size.

The counterpart of `oso_dp.privacy.mechanism` for batches that Opacus's loader drew. Noise comes
from the generator that the user gave, from one that the system seeds, or, under secure_mode, from
the system.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from opacus.optimizers.optimizer import _generate_noise
from torch import Tensor

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import combined_noise_multiplier

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query

ONE_RUN = slice(0, 1)


class Noise:
    """Gaussian noise by Opacus's own function, parameter by parameter as in its optimizer."""

    def __init__(self, generator: torch.Generator | None, secure_mode: bool) -> None:
        self.generator, self.secure_mode = generator, secure_mode

    def __call__(self, name: str, deviation: float, like: Sequence[Tensor]) -> Tensor:
        """One vector as long as `like`'s tensors together; `name`: of the query that it is for."""
        return torch.cat(
            [
                _generate_noise(deviation, reference, self.generator, self.secure_mode).flatten()
                for reference in like
            ]
        )

    def reseed(self, device: torch.device) -> None:
        """From here on other noise than after any earlier start, whatever seed the script sets."""
        if not self.secure_mode:
            self.generator = torch.Generator(device)
            self.generator.seed()


def seeded_generator(device: torch.device) -> torch.Generator:
    """With a seed of the system's: runs under one global seed of torch's would share their noise,
    and the difference of what two of them release would have none."""
    return torch.Generator(device).manual_seed(secrets.randbits(63))


def sanitize(
    queries: Sequence[Query],
    totals: Sequence[Tensor],
    noise_multiplier: float,
    batch_size: int,
    shapes: Sequence[Sequence[int]],
    noise: Noise,
    ledger: Ledger,
    record: Callable[[], None],
    distributed: bool,
) -> Answers:
    """Sanitized means, [1, P] or [1], by the query's key.

    `totals`: the exact sums of this worker, in the order of the queries. `noise_multiplier`: what
    the step may cost. `batch_size`: the expected one, of all workers. `shapes`: the parameters', in
    the order of P. `record`: the accountant's entry. Before anything is noised, both ledgers have
    the step. OsoError if the queries cost more than the step may.
    """
    multipliers = [query.noise_multiplier for query in queries]
    if combined_noise_multiplier(multipliers) < noise_multiplier * (1 - 1e-9):
        raise OsoError(f"noise multipliers {multipliers}: cost more than {noise_multiplier:g}")
    ledger.record(tuple(SumQuery(query.name, query.noise_multiplier) for query in queries))
    record()
    answers = {}
    for query, total in zip(queries, totals, strict=True):
        noised = total
        if not distributed or torch.distributed.get_rank() == 0:
            deviation = query.noise_multiplier * float(query.sensitivity(ONE_RUN))
            sizes = [()] if query.scalar else shapes
            like = [total.new_empty(size) for size in sizes]
            noised = total + noise(query.name, deviation, like).view_as(total)
        if distributed:
            torch.distributed.all_reduce(noised)
        answers[query.key] = noised / batch_size
    return answers
