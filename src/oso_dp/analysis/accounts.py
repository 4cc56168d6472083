"""Privacy accounts: epsilon of each stored grid, recomputed from its ledgers, and its budget.

Only the ledgers and the terms of the search (the grid's size, the distribution of a random number
of runs) are trusted. A grid's budget covers N runs of one seed each. Seeds repeat a grid for
statistics and are not charged (as in the paper), so a grid costs as much as its most expensive
seed. Every run is charged for all its steps, even if it diverged earlier: the step of divergence
depends on the data, so epsilon must hold for every outcome. Runs of the grid that are not stored
are charged with the smallest noise of the stored ones. Searches that differ in any option are
separate grids.

How a search's runs are charged is in its file in `oso_dp.accounting.search_accounting`.

A data set that is not public has one account for everything that was released about it. Runs of one
study share their noise, which was calibrated for `budget_runs` of them: that many are charged,
including runs that are not stored, or more if more are stored. Several studies of a data set add
up. Rows do not name their study: two studies with the same noise, budget and sizes cannot be
distinguished from one if their rows together are no more than one of them plans.
`results.conflicts` keeps two such studies out of one store; rows merged by hand must be added up by
the user.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from oso_dp.accounting.accountants import ACCOUNTANTS, compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    StoredRun,
    find_search_accounting,
    search_accounting_names,
)
from oso_dp.accounting.search_accounting.base import fill_up, full_run_ledger
from oso_dp.analysis.values import POINT
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.checks import (
    check_identity,
    check_planned,
    find_runs_error,
    parse_ledger,
    protected,
    records,
)
from oso_dp.study.cohort import sampling_of
from oso_dp.study.identity import OPTIONS, parse_trial_fractions
from oso_dp.study.plan import Plan


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

    def spent_by(self, accountant: str) -> float:
        """Epsilon by another accountant: pld or prv.

        NaN where only RDP supports the search accounting, and where prv does not support the delta
        or the number of steps.
        """
        if not find_search_accounting(self.search_accounting).supports_pld:
            return math.nan
        try:
            return compute_epsilon(self.ledgers, self.delta, accountant)
        except OsoError:
            return math.nan


# Runs that differ in one of these belong to different studies.
_STUDY = [
    *("noise_multiplier", "epsilon", "delta", "examples", "batch_size", "epochs"),
    *("budget_runs", "data_version", "model", "precision", "loss", "local"),
    *("evaluate_every", "schedule", "averaging"),
]


def counts_to_total(runs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of the table `runs` whose data set has a total: some are not public."""
    return runs["dataset"].isin(set(runs.loc[protected(runs), "dataset"]))


def account_datasets(runs: pd.DataFrame) -> list[GridAccount]:
    """One account per data set; runs: the rows that `counts_to_total`.

    Budget and delta are the smallest of the rows. Raises OsoError for a row whose run_id does not
    match its values, and for a data set whose runs protect different units.
    """
    groups = list(runs.groupby("dataset", sort=False))
    for name, rows in groups:
        public = rows[rows["budget_runs"].isna()]
        if len(public):
            raise OsoError(
                f"{name}: has {len(public)} runs that declare the data as public, and others that "
                "do not; what the former released is not accounted for; keep them in two stores"
            )
        if rows["unit"].isna().nunique() > 1:
            raise OsoError(
                f"{name}: has runs that protect users and others that protect examples; the same "
                "data pay for both, which no epsilon here adds up; keep them in two stores, and "
                "state both epsilons"
            )
    return [_total(str(name), rows) for name, rows in groups]


def _total(dataset: str, rows: pd.DataFrame) -> GridAccount:
    charged: list[Ledger] = []
    for _, study in rows.groupby(_STUDY, dropna=False, sort=False):
        charged += _charged_ledgers(study)
    delta = float(rows["delta"].min())
    return GridAccount(
        dataset=dataset,
        method=ALL_METHODS,
        k=0,
        epsilon=float(rows["epsilon"].min()),
        delta=delta,
        runs=len(charged),
        stored=len(rows),
        seeds=rows["seed"].nunique(),
        spent=compute_epsilon(charged, delta),
        ledgers=tuple(charged),
        total=True,
    )


ALL_METHODS = "all"  # instead of a method's name


def _charged_ledgers(study: pd.DataFrame) -> tuple[Ledger, ...]:
    """Full runs: as many as the noise was calibrated for, or as are stored if more."""
    ledgers = [parse_ledger(row) for row in records(study)]
    filler = full_run_ledger(ledgers, int(study["steps"].iloc[0]))
    size = max(int(study["budget_runs"].fillna(0).iloc[0]), len(ledgers))
    return fill_up(ledgers, filler, size)


# Runs with equal values in these columns form one search (its points, stages and seeds).
_SEARCH = [
    *("dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"),
    *("examples", "batch_size", "epochs", "steps", "precision"),
]
_NOISE = ["noise_multiplier", "query_noise_multiplier"]  # equal without stages


def account_grids(runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """Compute the privacy account of every private grid in the table `runs`.

    Grids come first, in the order of the rows; then searches by the linear scaling rule; then one
    account for each data set that is not public.

    Args:
        runs: The table `runs` as stored.
        *plans: Plans that the rows of their runs must agree with.

    Raises:
        OsoError: A row contradicts itself, its ledger or a plan.
    """
    planned = {
        run.run_id: (cohort, run)
        for plan in plans
        for cohort in plan.cohorts
        for run in cohort.runs
    }
    if text := find_runs_error(runs):
        raise OsoError(text)
    for row in records(runs):
        if row["run_id"] in planned:
            check_planned(row, *planned[row["run_id"]])
        check_identity(row)
    shared = counts_to_total(runs)
    searched = runs[runs["epsilon"].notna() & ~shared]
    has_stages = searched["search_accounting"].isin(_with_stages())
    options = [name for name in OPTIONS if name != "stage"]
    grids = searched[~has_stages].groupby([*_SEARCH, *_NOISE, *options], dropna=False, sort=False)
    staged = searched[has_stages].groupby([*_SEARCH, *options], dropna=False, sort=False)
    return [
        *(_account_search(rows) for groups in (grids, staged) for _, rows in groups),
        *account_datasets(runs[shared]),
    ]


def _with_stages() -> list[str]:
    return [name for name in search_accounting_names() if find_search_accounting(name).has_stages]


def account_store(results: Path, runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """Like `account_grids`; errors name the results folder."""
    try:
        return account_grids(runs, *plans)
    except OsoError as error:
        raise OsoError(f"{results}: {error}") from None


def check_budgets(accounts: Iterable[GridAccount]) -> None:
    """Raise OsoError for the first grid above its budget."""
    for grid in accounts:
        if not grid.is_within_budget:
            raise OsoError(
                f"{grid.name}: its ledgers cost epsilon {format_spent_epsilon(grid.spent)} at "
                f"delta {grid.delta!r} ({grid.runs} runs); the budget is {grid.epsilon:g}"
            )


def most_expensive(accounts: Iterable[GridAccount]) -> dict[str, GridAccount]:
    """For each data set the grid with the largest ratio of spent epsilon to budget.

    Searches that only the RDP accountant supports are left out.
    """
    by_dataset: dict[str, GridAccount] = {}
    for grid in accounts:
        if not find_search_accounting(grid.search_accounting).supports_pld:
            continue
        best = by_dataset.setdefault(grid.dataset, grid)
        if grid.spent / grid.epsilon > best.spent / best.epsilon:
            by_dataset[grid.dataset] = grid
    return by_dataset


_SLOWER = [name for name in ACCOUNTANTS if name != "rdp"]
GRID_KEYS = ["dataset", "method", "k", "search_accounting"]  # whose texts are in `grid`
ACCOUNT_COLUMNS = [
    *(*GRID_KEYS, "grid", "budget", "delta", "runs", "stored", "seeds"),
    *("rdp", *_SLOWER, "verdict"),
]


def accounts_table(accounts: Sequence[GridAccount], all_accountants: bool = False) -> pd.DataFrame:
    """One row per grid, columns `ACCOUNT_COLUMNS`.

    pld and prv are NaN except for the most expensive grid of each data set, unless
    `all_accountants` is set: they take about a second per grid. They are also NaN above the budget,
    where small noise makes these accountants take hours.
    """
    checked = most_expensive(accounts).values()
    rows = []
    for grid in accounts:
        check = grid.is_within_budget and (all_accountants or grid in checked)
        rows.append(
            {
                **{name: getattr(grid, name) for name in GRID_KEYS},
                "grid": grid.name,
                "budget": grid.epsilon,
                "delta": grid.delta,
                "runs": grid.runs,
                "stored": grid.stored,
                "seeds": grid.seeds,
                "rdp": grid.spent,
                **{name: grid.spent_by(name) if check else math.nan for name in _SLOWER},
                "verdict": "within" if grid.is_within_budget else "exceeded",
            }
        )
    return pd.DataFrame(rows, columns=ACCOUNT_COLUMNS)


def _account_search(rows: pd.DataFrame) -> GridAccount:
    """The account of one search, of all its seeds."""
    first = records(rows)[0]
    epsilon, delta = float(first["epsilon"]), float(first["delta"])
    accounting = find_search_accounting(first["search_accounting"])
    fractions = first["trial_fractions"]
    options = {
        "stopping_distribution": first["stopping_distribution"],
        "trial_fractions": fractions and parse_trial_fractions(fractions),
    }
    sampling = sampling_of(first)
    runs = accounting.planned_runs(int(first["grid_runs"]))
    search = accounting.search(sampling, int(first["steps"]), runs, options)
    stored = [
        StoredRun(
            parse_ledger(row), row["run_id"], row["seed"], tuple(map(row.get, POINT)), row["stage"]
        )
        for row in records(rows)
    ]
    charges = accounting.charge(search, stored, epsilon, delta)
    most = max(charges, key=lambda one: one.spent)
    return GridAccount(
        dataset=first["dataset"],
        method=first["method"],
        k=int(first["k"]),
        epsilon=epsilon,
        delta=delta,
        runs=len(most.ledgers),
        stored=most.stored,
        seeds=rows["seed"].nunique(),
        spent=most.spent,
        ledgers=most.ledgers,
        search_accounting=accounting.name,
    )
