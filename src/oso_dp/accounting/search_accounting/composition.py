"""All N runs of a grid are released and counted (Galli et al. 2024, "Experiments").

Seeds repeat a grid for statistics and are not charged, as in the paper: a grid costs as much as its
most expensive seed.
"""

from collections.abc import Mapping
from typing import Any

from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.accounting.search_accounting.base import SearchAccounting
from oso_dp.privacy.sampling import PoissonSampling


class Composition(SearchAccounting):
    """N x T subsampled Gaussians."""

    name = COMPOSITION
    label = "whole grid"
    summary = "the costs of all runs add up"
    counts_every_run = True

    def search(
        self, sampling: PoissonSampling, steps: int, runs: int, options: Mapping[str, Any]
    ) -> Search:
        return Search(sampling, steps, runs)
