"""Calibration of the noise multiplier to a budget, or to what is left of a partly spent one."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from oso_dp.accounting.accountants import CALIBRATING, compute_epsilon
from oso_dp.accounting.formatting import format_large_delta_warning, format_spent_epsilon
from oso_dp.accounting.search import LARGEST_NOISE, SMALLEST_NOISE, Search
from oso_dp.errors import OsoError, warn_once
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.value_checks import as_plain, check_number

_log = logging.getLogger(__name__)
_LOG_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Budget:
    """The (epsilon, delta) budget of a training or of a complete search.

    Raises OsoError for a value that is not allowed.
    """

    epsilon: float
    delta: float
    accountant: str = "rdp"

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, as_plain(getattr(self, name)))
        if self.epsilon == math.inf:
            raise OsoError("epsilon: inf; must be finite; to train without noise, use plain torch")
        check_number("epsilon", self.epsilon, gt=0)
        check_number("delta", self.delta, gt=0, lt=1)
        if self.accountant not in CALIBRATING:
            allowed = ", ".join(CALIBRATING)
            raise OsoError(f"accountant: {self.accountant!r}; must be one of {allowed}")

    def warn_of_large_delta(self, sampling: PoissonSampling, records: int) -> None:
        if warning := format_large_delta_warning(self.delta, records, sampling.unit.plural):
            warn_once(_log, f"delta: {self.delta!r}; {warning}")


def remaining_noise_multiplier(
    sampling: PoissonSampling,
    steps: int,
    epsilon: float,
    delta: float,
    accountant: str,
    spent: Sequence[Ledger] = (),
) -> float:
    """The smallest nu for `steps` more steps such that they and `spent` cost at most epsilon.

    Raises OsoError if no noise multiplier does.
    """
    if not any(ledger.steps for ledger in spent):
        return Search(sampling, steps, 1).noise_multiplier(epsilon, delta, accountant)

    def cost(nu: float) -> float:
        further = Ledger(sampling, [((SumQuery("step", nu),), steps)])
        return compute_epsilon([*spent, further], delta, accountant)

    spent_epsilon = compute_epsilon(spent, delta, accountant)
    if cost(LARGEST_NOISE) > epsilon:
        raise OsoError(
            f"epsilon: {epsilon:g}; {format_spent_epsilon(spent_epsilon)} of it is spent, at delta "
            f"{delta!r}; nothing is left for {steps} more steps"
        )
    # From above, where an accountant is fast: with little noise it may take minutes.
    low, high = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
    while math.exp(high) > 2 * SMALLEST_NOISE and cost(math.exp(high) / 2) <= epsilon:
        high -= math.log(2)
    low = max(low, high - math.log(2))
    while high - low > _LOG_TOLERANCE:
        middle = (low + high) / 2
        if cost(math.exp(middle)) <= epsilon:
            high = middle
        else:
            low = middle
    return math.exp(high)
