"""The privacy account of one grid, and ledgers padded to full runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery


@dataclass(frozen=True)
class GridAccount:
    """One grid's budget and the epsilon that its ledgers cost.

    If `total` is set, the account covers all releases about one data set that is not public;
    `method` and `k` are then not those of a grid.
    """

    dataset: str
    method: str
    k: int
    epsilon: float  # the budget
    delta: float
    # N of the full grid; the mean number under random stopping; 1 without a search; N for each
    # trial, plus 1, under the linear scaling rule.
    runs: int
    stored: int  # stored runs of the most expensive seed; 1 without a search
    seeds: int
    spent: float  # epsilon by RDP, from the ledgers
    ledgers: tuple[Ledger, ...]  # N of them, from which `spent` was computed
    search_accounting: str = COMPOSITION
    # The rows do not record the size of their grid, and the stored runs cost no more than the
    # budget: only the assumed size exceeds it.
    ambiguity: bool = False
    total: bool = False

    @property
    def name(self) -> str:
        if self.total:
            return f"{self.dataset}.total.eps{self.epsilon:g}"
        cell = f"{self.dataset}.{self.method}.k{self.k}.eps{self.epsilon:g}"
        return cell if self.search_accounting == COMPOSITION else f"{cell}.{self.search_accounting}"

    @property
    def is_within_budget(self) -> bool:
        return self.spent <= self.epsilon * (1 + ROUNDING)

    @property
    def budget_status(self) -> str:
        if self.is_within_budget:
            return "within"
        return "unclear" if self.ambiguity else "exceeded"

    def spent_by(self, accountant: str) -> float:
        """Epsilon by another accountant: pld or prv.

        NaN under random stopping, which only RDP supports, and where prv does not support the delta
        or the number of steps.
        """
        if self.search_accounting == RANDOM_STOPPING:
            return math.nan
        try:
            return compute_epsilon(self.ledgers, self.delta, accountant)
        except OsoError:
            return math.nan


def full_run_ledger(ledgers: Sequence[Ledger], steps: int) -> Ledger:
    """The ledger charged for a run that is not stored: all steps, with the smallest noise."""
    least = min(nu for ledger in ledgers for nu, _ in ledger.releases())
    return Ledger(ledgers[0].sampling, [((SumQuery("not_stored", least),), steps)])


def pad_to_full_run(ledger: Ledger, whole: Ledger) -> Ledger:
    """The ledger padded to all steps of a full run, if the run diverged before its last step."""
    missing = whole.step_count - ledger.step_count
    if missing <= 0:
        return ledger
    least = min(nu for nu, _ in ledger.releases())
    return Ledger(ledger.sampling, [*ledger.steps, ((SumQuery("not_run", least),), missing)])
