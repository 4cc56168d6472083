"""The Gaussian mechanism on a logical batch: ledger entry, noise, division by the expected size.

The counterpart of `oso_dp.privacy.mechanism` for batches that Opacus's loader draws. Noise comes
from the user's generator, from one that the system seeds, or, under secure_mode, from the system.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from opacus.optimizers.optimizer import _generate_noise
from torch import Tensor

from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.noise_composition import combined_noise_multiplier

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers, Query

ONE_RUN = slice(0, 1)


class Noise:
    """Gaussian noise by Opacus's function, parameter by parameter as in its optimizer.

    It has the type of `like`. Draw float64: on a CPU a float32 number has 24 random bits and is at
    most 5.8 standard deviations, so that outcomes that only another data set can have would be more
    probable than a usual delta.
    """

    def __init__(self, generator: torch.Generator | None, secure_mode: bool) -> None:
        self.generator, self.secure_mode = generator, secure_mode

    def __call__(self, name: str, deviation: float, like: Sequence[Tensor]) -> Tensor:
        """One vector for all tensors of `like`; `name` is the query's."""
        return torch.cat(
            [
                _generate_noise(deviation, reference, self.generator, self.secure_mode).flatten()
                for reference in like
            ]
        )

    def reseed(self, device: torch.device) -> None:
        """Draw fresh noise from here on, independent of any seed that the script sets."""
        if not self.secure_mode:
            self.generator = torch.Generator(device)
            self.generator.seed()


def seeded_generator(device: torch.device) -> torch.Generator:
    """A generator that the system seeds.

    Runs under one global torch seed would share their noise, and the difference of what two of them
    release would be noiseless.
    """
    return torch.Generator(device).manual_seed(secrets.randbits(63))


def derived_generator(generator: torch.Generator) -> torch.Generator:
    """A generator that is seeded by a draw from this one.

    Scripts seed their loader equally: the noise would then be a function of which examples are in
    the batch.
    """
    device = generator.device
    seed = torch.randint(2**63 - 1, (1,), generator=generator, device=device)
    return torch.Generator(device).manual_seed(int(seed))


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

    The step is in both ledgers before any noise is added.

    Args:
        queries: The step's queries.
        totals: This worker's sums before noise, in the order of the queries.
        noise_multiplier: nu of the whole step: all queries together.
        batch_size: The expected batch size over all workers.
        shapes: The parameters' shapes, in the order of P.
        noise: Draws the noise.
        ledger: Gets the step's queries.
        record: Adds the step to Opacus's accountant.
        distributed: Whether to sum over workers; rank 0 adds the noise.

    Raises:
        OsoError: If the queries together cost more than one release at `noise_multiplier`.
    """
    multipliers = [query.noise_multiplier for query in queries]
    if combined_noise_multiplier(multipliers) < noise_multiplier * (1 - ROUNDING):
        raise OsoError(
            f"noise multipliers {multipliers}: together cost more than a step at "
            f"noise_multiplier {noise_multiplier:g}"
        )
    ledger.record(tuple(SumQuery(query.name, query.noise_multiplier) for query in queries))
    record()
    answers = {}
    for query, total in zip(queries, totals, strict=True):
        noised = total
        if not distributed or torch.distributed.get_rank() == 0:
            deviation = query.noise_multiplier * float(query.sensitivity(ONE_RUN))
            sizes = [()] if query.scalar else shapes
            like = [total.new_empty(size, dtype=torch.float64) for size in sizes]
            noised = (total + noise(query.name, deviation, like).view_as(total)).to(total.dtype)
        if distributed:
            torch.distributed.all_reduce(noised)
        answers[query.key] = noised / batch_size
    return answers
