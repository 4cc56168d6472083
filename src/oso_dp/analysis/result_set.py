"""The results of a study with its cached tables: values of runs, grid points and cells."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.values import (
    cross_select_points,
    grid_points,
    main_variants,
    select_best_points,
)
from oso_dp.analysis.values import checkpoints_by_rule, select_checkpoints
from oso_dp.analysis.values import add_keys
from oso_dp.analysis.result_set import grid_sizes
from oso_dp.analysis.side_measurements import no_step_times
from oso_dp.methods import method_names
from oso_dp.results.checks import shared_budgets
from oso_dp.study.grid import default_grid_size

Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultSet:
    """Validated result rows, the optional budget and side measurements of a study."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame
    budget: pd.DataFrame
    costs: Mapping[tuple, float] = field(default_factory=dict)  # see `search_costs.read_costs`
    cosine: pd.DataFrame = field(
        default_factory=pd.DataFrame
    )  # see `side_measurements.read_cosine`
    step_times: pd.DataFrame = field(default_factory=no_step_times)
    signs: pd.DataFrame = field(default_factory=pd.DataFrame)  # see `side_measurements.read_signs`
    known_words: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # see above
    _tables: dict[Hashable, Any] = field(default_factory=dict)

    def cache_table(self, name: Hashable, compute: Callable[[], Result]) -> Result:
        """The result of `compute`, which is called once for each name."""
        if name not in self._tables:
            self._tables[name] = compute()
        return self._tables[name]

    @cached_property
    def keyed(self) -> pd.DataFrame:
        """The runs with their keys, see `grouping.add_keys`."""
        return add_keys(self.runs, self.evaluations)

    @cached_property
    def checkpoints(self) -> pd.DataFrame:
        """The splits' values at each evaluated step, see `checkpoint_selection`."""
        return checkpoints_by_rule(self.keyed, self.evaluations)

    @cached_property
    def values(self) -> pd.DataFrame:
        """One row per run under the rule `best`, see `checkpoint_selection.select_checkpoints`."""
        return select_checkpoints(self.keyed, self.checkpoints, "best")

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per grid point under the rule `best`, of searches by composition."""
        return grid_points(_select_composition(self.values))

    @cached_property
    def main_runs(self) -> pd.DataFrame:
        """The runs of the cells: `values` of each cell's main variant."""
        return self.values[
            self.values["variant_key"].isin(main_variants(self.points)["variant_key"])
        ]

    @cached_property
    def best(self) -> pd.DataFrame:
        """One row per cell that was run, under the rule `best`."""
        return select_best_points(self.points)

    @cached_property
    def plain_best(self) -> pd.DataFrame:
        """The rows of `best` without a schedule or averaging."""
        return self.best[self.best["variant"] == ""]

    @cached_property
    def last(self) -> pd.DataFrame:
        """One row per cell that was run, with its point also selected by the rule `last`."""
        return select_best_points(self.last_points)

    @cached_property
    def last_points(self) -> pd.DataFrame:
        """One row per grid point under the rule `last`, as `points`."""
        return grid_points(
            _select_composition(select_checkpoints(self.keyed, self.checkpoints, "last"))
        )

    @cached_property
    def cross_selected(self) -> pd.DataFrame:
        """One row per cell that was run, under the rule `cross`."""
        return cross_select_points(self._cross_selected, self.points)

    @cached_property
    def cross_selected_points(self) -> pd.DataFrame:
        """One row per grid point under the rule `cross`, as `points`."""
        both = (self._cross_selected["value_even"] + self._cross_selected["value_odd"]) / 2
        return grid_points(self._cross_selected.assign(value=both))

    @cached_property
    def _cross_selected(self) -> pd.DataFrame:
        return _select_composition(select_checkpoints(self.keyed, self.checkpoints, "cross"))

    @cached_property
    def best_runs(self) -> pd.DataFrame:
        """The runs of every cell's best grid point."""
        return self.values[self.values["point"].isin(self.best["point"])]

    @cached_property
    def shared_budgets(self) -> dict[str, int]:
        """For each data set that is not public, the number of runs that share its epsilon."""
        known = self.budget.reindex(columns=["dataset", "budget_runs"]).dropna()
        sizes = dict(zip(known["dataset"], known["budget_runs"].astype(int), strict=True))
        return sizes | shared_budgets(self.runs)

    def grid_size(self, dataset: str, method: str, k: int) -> int | None:
        """N, the number of runs of the full grid.

        From the budget, else from the rows if all agree, else from the paper's design, else None.
        """
        known = self._grid_sizes.get((dataset, method, k))
        if known is None and method in method_names():
            return default_grid_size(method, int(k))
        return known

    @cached_property
    def _grid_sizes(self) -> dict[tuple[str, str, int], int]:
        return _declared_sizes(self.runs) | grid_sizes(self.budget)

    @property
    def has_only_shared_budgets(self) -> bool:
        """Whether every data set has one budget for all of its runs."""
        return {*self.datasets} <= {*self.shared_budgets}

    def budgeted_runs(self, dataset: str) -> str:
        """What an epsilon of this data set is the budget of, in words."""
        return "whole study" if dataset in self.shared_budgets else "whole grid"

    @cached_property
    def datasets(self) -> list[str]:
        return labels.sort_datasets(self.runs["dataset"].unique())

    @cached_property
    def methods(self) -> list[str]:
        return labels.sort_methods(self.runs["method"].unique())


def _declared_sizes(runs: pd.DataFrame) -> dict[tuple[str, str, int], int]:
    """(data set, method, k) -> N, where all rows agree on it.

    From rows of random stopping if there are none of composition.
    """
    sizes: dict[tuple[str, str, int], int] = {}
    for search_accounting in (RANDOM_STOPPING, COMPOSITION):
        rows = runs[runs["search_accounting"] == search_accounting]
        for (dataset, method, k), grids in rows.groupby(["dataset", "method", "k"]):
            sizes.pop((dataset, method, int(k)), None)
            if grids["grid_runs"].notna().all() and grids["grid_runs"].nunique() == 1:
                sizes[dataset, method, int(k)] = int(grids["grid_runs"].iloc[0])
    return sizes


def _select_composition(values: pd.DataFrame) -> pd.DataFrame:
    """The rows of searches by composition, whose outcome is their best point.

    See `random_stopping`, `linear_scaling` and `untuned_runs` for the others.
    """
    return values[values["search_accounting"] == COMPOSITION]
