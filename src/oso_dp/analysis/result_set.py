"""The results of a study with its cached tables: values of runs, grid points and cells."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.side_measurements import (
    ADAPTATION_SIGNS,
    COSINES,
    PATE_PUBLISHED,
    STEP_TIMES,
    UPDATE_NORMS,
    WRITER_SERIES,
)
from oso_dp.analysis.values import (
    add_keys,
    checkpoints_by_rule,
    cross_select_points,
    grid_points,
    main_variants,
    select_best_points,
    select_checkpoints,
)
from oso_dp.methods import method_names
from oso_dp.privacy.promise import EXAMPLE
from oso_dp.results.checks import shared_budgets
from oso_dp.study.cohort import PlannedCohort
from oso_dp.study.grid import default_grid_size
from oso_dp.study.plan import Plan

GRID = ("dataset", "method", "k", "epsilon")
_FACTS = ("delta", "steps", "sampling_rate", "budget_runs")
GRID_COLUMNS = [*GRID, "runs", "noise_multiplier", "query_noise_multiplier", *_FACTS]


def list_grids(plans: Sequence[Plan]) -> pd.DataFrame:
    """The grids of plans, columns `GRID_COLUMNS`; of several of one name, the first.

    Untuned runs and searches by the linear scaling rule belong to no grid under one budget and are
    left out. Random stopping has a grid, but its noise is not that of a composed grid: its cohorts
    give only the size. NaN: what NoDP lacks, and that noise.
    """
    rows = [
        _grid_row(cohort)
        for search_accounting in (COMPOSITION, RANDOM_STOPPING)
        for plan in plans
        for cohort in plan.cohorts
        if cohort.search_accounting == search_accounting
    ]
    table = pd.DataFrame(rows, columns=GRID_COLUMNS)
    return table.drop_duplicates([*GRID], ignore_index=True)


def _grid_row(cohort: PlannedCohort) -> dict[str, Any]:
    has_noise = cohort.is_private and cohort.search_accounting == COMPOSITION
    return {
        **{name: getattr(cohort, name) for name in ("dataset", "method", "k")},
        "epsilon": _as_number(cohort.epsilon),
        "runs": cohort.grid_runs,
        "noise_multiplier": cohort.noise_multiplier if has_noise else math.nan,
        "query_noise_multiplier": _as_number(cohort.query_noise_multiplier if has_noise else None),
        "delta": _as_number(cohort.delta),
        "steps": float(cohort.steps),
        "sampling_rate": cohort.sampling.rate,
        "budget_runs": _as_number(cohort.budget_runs),
    }


def _as_number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def grid_sizes(budget: pd.DataFrame) -> dict[tuple[str, str, int], int]:
    """(data set, method, k) -> N, the number of runs of the full grid, for grids of the budget."""
    greatest = budget.groupby(["dataset", "method", "k"])["runs"].max()
    return greatest.astype(int).to_dict()


Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultSet:
    """Validated result rows, the optional budget and side measurements of a study."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame
    budget: pd.DataFrame  # see `list_grids`
    costs: Mapping[tuple, float] = field(default_factory=dict)  # see `search_costs.read_costs`
    known_words: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by data set
    pate: pd.DataFrame = field(default_factory=pd.DataFrame)  # see `results.pate_rows`
    cosine: pd.DataFrame = field(default_factory=COSINES.empty)
    step_times: pd.DataFrame = field(default_factory=STEP_TIMES.empty)
    signs: pd.DataFrame = field(default_factory=ADAPTATION_SIGNS.empty)
    update_norms: pd.DataFrame = field(default_factory=UPDATE_NORMS.empty)
    pate_published: pd.DataFrame = field(default_factory=PATE_PUBLISHED.empty)
    writer_series: pd.DataFrame = field(default_factory=WRITER_SERIES.empty)
    tables: dict[str, Any] = field(default_factory=dict, init=False)  # of `cached_per_study`

    @cached_property
    def keyed(self) -> pd.DataFrame:
        """The runs with their keys, see `add_keys`."""
        return add_keys(self.runs, self.evaluations)

    @cached_property
    def checkpoints(self) -> pd.DataFrame:
        """The splits' values at each evaluated step, see `checkpoints_by_rule`."""
        return checkpoints_by_rule(self.keyed, self.evaluations)

    @cached_property
    def values(self) -> pd.DataFrame:
        """One row per run under the rule `best`, see `select_checkpoints`."""
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
        return cross_select_points(_select_composition(self.cross_values), self.points)

    @cached_property
    def cross_selected_points(self) -> pd.DataFrame:
        """One row per grid point under the rule `cross`, as `points`."""
        return grid_points(_select_composition(self.cross_values))

    @cached_property
    def cross_values(self) -> pd.DataFrame:
        """One row per run under the rule `cross`; `value` is the mean over both halves."""
        values = select_checkpoints(self.keyed, self.checkpoints, "cross")
        return values.assign(value=(values["value_even"] + values["value_odd"]) / 2)

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
    def units(self) -> list[str]:
        """The names of the units of privacy."""
        return [*self.runs["unit"].fillna(EXAMPLE.name).unique()]

    @cached_property
    def datasets(self) -> list[str]:
        return labels.sort_datasets(self.runs["dataset"].unique())

    @cached_property
    def methods(self) -> list[str]:
        return labels.sort_methods(self.runs["method"].unique())


def cached_per_study(compute: Callable[[ResultSet], Result]) -> Callable[[ResultSet], Result]:
    """Decorator: compute a table once for each study."""
    name = f"{compute.__module__}.{compute.__qualname__}"

    @wraps(compute)
    def cached(study: ResultSet) -> Result:
        if name not in study.tables:
            study.tables[name] = compute(study)
        return study.tables[name]

    return cached


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
