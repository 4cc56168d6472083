"""No search: each grid point is an untuned run that spends the complete budget.

A study of public data evaluates all of them. Publishing several would cost their composition; the
account is that of the most expensive one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import SINGLE
from oso_dp.accounting.search_accounting.base import (
    Charge,
    SearchAccounting,
    StoredRun,
    full_run_ledger,
    pad_to_full_run,
)
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling


class Single(SearchAccounting):
    """T subsampled Gaussians."""

    name = SINGLE
    label = "untuned"
    summary = "one run, without a search"
    is_search = False

    def search(
        self, sampling: PoissonSampling, steps: int, runs: int, options: Mapping[str, Any]
    ) -> Search:
        if runs != 1:
            raise OsoError(f"runs: {runs}; must be 1 for search_accounting {self.name}")
        return Search(sampling, steps, runs)

    def planned_runs(self, grid_size: int) -> int:
        return 1

    def charge(
        self, search: Search, stored: Sequence[StoredRun], epsilon: float, delta: float
    ) -> list[Charge]:
        """What each run costs."""
        filler = full_run_ledger([run.ledger for run in stored], search.steps)
        every = [pad_to_full_run(run.ledger, filler) for run in stored]
        return [Charge(compute_epsilon([one], delta), 1, (one,)) for one in every]
