"""What is charged to a budget: an account, and what of a ledger counts towards it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery

BUDGET_TOLERANCE = 1 + 1e-9


@dataclass(frozen=True)
class GridAccount:
    """One grid: what it may cost, and what its ledgers say that it costs.

    Or, if `total`, all that was released of one data set that is not public: `method` and `k` are
    then those of no grid.
    """

    dataset: str
    method: str
    k: int
    epsilon: float  # the budget
    delta: float
    # N, of the whole grid; under random stopping, on average; 1 without a search; by the linear
    # scaling rule N for each trial, and 1.
    runs: int
    stored: int  # of the costliest seed; 1 without a search
    seeds: int
    spent: float  # epsilon by RDP, from the ledgers
    ledgers: tuple[Ledger, ...]  # N of them: what `spent` was computed from
    search_accounting: str = COMPOSITION
    # The rows do not say how large their grid is, and the runs that are stored cost no more than
    # the budget: only the size that was assumed does.
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
        return self.spent <= self.epsilon * BUDGET_TOLERANCE

    @property
    def budget_status(self) -> str:
        if self.is_within_budget:
            return "within"
        return "unclear" if self.ambiguity else "exceeded"

    def spent_by(self, accountant: str) -> float:
        """The same by another accountant: pld, prv. NaN where RDP alone can.

        That is so under random stopping, and by prv at a delta or for steps that it refuses.
        """
        if self.search_accounting == RANDOM_STOPPING:
            return math.nan
        try:
            return compute_epsilon(self.ledgers, self.delta, accountant)
        except OsoError:
            return math.nan


def full_run_ledger(ledgers: Sequence[Ledger], steps: int) -> Ledger:
    """What a run that is not stored may have released: all its steps, with the least noise seen."""
    least = min(nu for ledger in ledgers for nu, _ in ledger.releases())
    return Ledger(ledgers[0].sampling, [((SumQuery("not_stored", least),), steps)])


def pad_to_full_run(ledger: Ledger, whole: Ledger) -> Ledger:
    """The ledger with as many steps as a whole run, also where the run diverged before its last."""
    missing = whole.step_count - ledger.step_count
    if missing <= 0:
        return ledger
    least = min(nu for nu, _ in ledger.releases())
    return Ledger(ledger.sampling, [*ledger.steps, ((SumQuery("not_run", least),), missing)])
