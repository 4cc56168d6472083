"""Privacy accounts: epsilon of each stored grid, recomputed from its ledgers, and its budget.

Only the ledgers and the terms of the search (the grid's size, the distribution of a random number
of runs) are trusted. A grid's budget covers N runs of one seed each. Seeds repeat a grid for
statistics and are not charged (as in the paper), so a grid costs as much as its most expensive
seed. Every run is charged for all its steps, even if it diverged earlier: the step of divergence
depends on the data, so epsilon must hold for every outcome. Runs of the grid that are not stored
are charged with the smallest noise of the stored ones.

Searches that differ in any option are separate grids, if their plans or rows record the options.
Runs with unknown options are charged to each grid that they could belong to.

Under random stopping (Papernot and Steinke 2022) a search makes N runs on average and releases the
best. Its privacy cost is that of this release, not of all rows: the rows serve to compute the
search's expected outcome. Each run is charged for all its steps with the smallest stored noise.

Without a search (`single`) each row has the whole budget, and the account is that of the most
expensive row. Publishing several such runs would cost their composition: the rows exist for
comparison.

A search by the linear scaling rule has one account for all its stages: all runs of all its trials
and one final run, under one seed. The rows have a final run at every point of the grid; a search
releases one of them, and the most expensive is charged. Runs that are not stored are charged as
well: with the smallest noise of their stage's stored rows, else with the noise that the budget
requires.

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
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    FINAL_STAGE,
    LINEAR_SCALING,
    RANDOM_STOPPING,
    SINGLE,
)
from oso_dp.accounting.tuning_cost import (
    STOPPING_ETA,
    Search,
    compute_random_stopping_epsilon,
    infer_stopping_distribution,
)
from oso_dp.analysis.values import POINT
from oso_dp.defaults import ROUNDING
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import (
    Row,
    check_identity,
    check_planned,
    find_runs_error,
    parse_ledger,
    protected,
    records,
)
from oso_dp.study.cohort import Cohort
from oso_dp.study.grid import default_grid_size
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


# Runs with equal values in these columns form one search (its points, stages and seeds).
_SEARCH = [
    *("dataset", "method", "k", "epsilon", "delta", "momentum"),
    *("examples", "batch_size", "epochs", "steps", "precision"),
    *(name for name in OPTIONS if name != "stage"),
]


def account_linear_scaling(rows: pd.DataFrame) -> list[GridAccount]:
    """One account for each search, in the order of the rows.

    rows: validated rows of the table `runs`, all by the linear scaling rule. Raises OsoError for a
    row whose run_id does not match its content.
    """
    for row in records(rows):
        check_identity(row)
    groups = rows.groupby(_SEARCH, dropna=False, sort=False)
    return [_account(search) for _, search in groups]


def _account(rows: pd.DataFrame) -> GridAccount:
    first = records(rows)[0]
    epsilon, delta = float(first["epsilon"]), float(first["delta"])
    sampling = PoissonSampling.of(first["batch_size"], first["examples"])
    steps = int(first["steps"])
    fractions = parse_trial_fractions(first["trial_fractions"])
    search = LinearScalingSearch(sampling, steps, int(first["grid_runs"]), fractions)
    parts = {name: part for name, part in rows.groupby("stage")}
    fillers = {
        part: full_run_ledger([parse_ledger(row) for row in parts[part].to_dict("records")], steps)
        if part in parts
        else _planned_ledger(search, part, epsilon, delta)
        for part in search.stages
    }
    charged = []
    for _, seed in rows.groupby("seed"):
        count, whole = 0, []
        for part in search.stages:
            of_part = seed[seed["stage"] == part].to_dict("records")
            stored = [pad_to_full_run(parse_ledger(row), fillers[part]) for row in of_part]
            size = search.runs
            if part == FINAL_STAGE:
                size = 1
                stored = sorted(stored, key=lambda one: compute_epsilon([one], delta))[-1:]
            elif part in parts:  # more points than the grid has mean a larger grid
                size = max(size, len(parts[part][POINT].drop_duplicates()))
            count += len(stored)
            whole += [*stored, *[fillers[part]] * (size - len(stored))]
        charged.append((compute_epsilon(whole, delta), count, tuple(whole)))
    spent, count, ledgers = max(charged, key=lambda one: one[0])
    return GridAccount(
        dataset=first["dataset"],
        method=first["method"],
        k=int(first["k"]),
        epsilon=epsilon,
        delta=delta,
        runs=len(ledgers),
        stored=count,
        seeds=rows["seed"].nunique(),
        spent=spent,
        ledgers=ledgers,
        search_accounting=LINEAR_SCALING,
    )


def _planned_ledger(search: LinearScalingSearch, part: str, epsilon: float, delta: float) -> Ledger:
    """The ledger of a run of a stage without stored rows, with the budget's noise."""
    nu = search.noise_multipliers(epsilon, delta)[search.stages.index(part)]
    return Ledger(search.sampling, [((SumQuery("not_stored", nu),), search.steps)])


# Runs that differ in one of these belong to different studies.
_STUDY = [
    *("noise_multiplier", "epsilon", "delta", "examples", "batch_size", "epochs"),
    *("budget_runs", "data_version"),
]


def counts_to_total(runs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of the table `runs` that count towards their data set's total.

    Rows without options are charged to the total if their data set has one.
    """
    is_private = protected(runs)
    unknown = runs["model"].isna() & runs["dataset"].isin(set(runs.loc[is_private, "dataset"]))
    return is_private | unknown


def account_datasets(runs: pd.DataFrame) -> list[GridAccount]:
    """One account per data set; runs: the rows that `counts_to_total`.

    Budget and delta are the smallest of the rows. Raises OsoError for a row whose run_id does not
    match its values.
    """
    return [_total(str(name), rows) for name, rows in runs.groupby("dataset", sort=False)]


def _total(dataset: str, rows: pd.DataFrame) -> GridAccount:
    for row in records(rows):
        check_identity(row)
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


def _charged_ledgers(study: pd.DataFrame) -> list[Ledger]:
    """Full runs: as many as the noise was calibrated for, or as are stored if more."""
    ledgers = [parse_ledger(row) for row in records(study)]
    filler = full_run_ledger(ledgers, int(study["steps"].iloc[0]))
    size = max(int(study["budget_runs"].fillna(0).iloc[0]), len(ledgers))
    return [
        *(pad_to_full_run(ledger, filler) for ledger in ledgers),
        *[filler] * (size - len(ledgers)),
    ]


# Runs with equal values in these columns form one grid (its points and its seeds).
_RUN_KEY = [
    *("dataset", "method", "k", "epsilon", "delta", "search_accounting", "momentum"),
    *(
        "noise_multiplier",
        "query_noise_multiplier",
        "examples",
        "batch_size",
        "epochs",
        "precision",
    ),
]
_TERMS = ["grid_runs", "stopping_distribution"]  # of the search


def account_grids(runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """Compute the privacy account of every private grid in the table `runs`.

    Grids come first, in the order of the rows; then searches by the linear scaling rule; then one
    account for each data set that is not public.

    Args:
        runs: The table `runs` as stored.
        *plans: Plans that give each grid's size and the distribution of a random number of runs.
            For runs in no plan, the rows give both. Where their options are null, the size is that
            of the full grid for the method and k, and the distribution is the one for which the
            noise was calibrated (`infer_stopping_distribution`), or else the most expensive.

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
    shared = counts_to_total(runs)
    searched = runs["epsilon"].notna() & ~shared
    scaled = searched & (runs["search_accounting"] == LINEAR_SCALING)
    private = runs[searched & ~scaled]
    completed = [
        _complete_options(row, planned.get(row["run_id"], (None,))[0]) for row in records(private)
    ]
    private = pd.DataFrame(completed, index=private.index, columns=private.columns)
    groups = private.groupby([*_RUN_KEY, *_TERMS], dropna=False, sort=False)
    grids = [_account_grid(grid) for _, group in groups for grid in _group_by_options(group)]
    return grids + account_linear_scaling(runs[scaled]) + account_datasets(runs[shared])


def _group_by_options(group: pd.DataFrame) -> list[pd.DataFrame]:
    """Split rows by their options; rows with unknown options are added to every group."""
    unknown = group["model"].isna()
    known = group[~unknown].groupby([*OPTIONS], dropna=False, sort=False).groups
    return [group[unknown | group.index.isin(rows)] for rows in known.values()] or [group]


def account_store(results: Path, runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """Like `account_grids`; errors name the results folder."""
    try:
        return account_grids(runs, *plans)
    except OsoError as error:
        raise OsoError(f"{results}: {error}") from None


def check_budgets(accounts: Iterable[GridAccount]) -> None:
    """Raise OsoError for the first grid above its budget."""
    for grid in accounts:
        if grid.budget_status == "exceeded":
            raise OsoError(
                f"{grid.name}: its ledgers cost epsilon {format_spent_epsilon(grid.spent)} at "
                f"delta {grid.delta!r} ({grid.runs} runs); the budget is {grid.epsilon:g}"
            )


def check_grid_sizes(accounts: Iterable[GridAccount]) -> None:
    """Raise OsoError for the first grid of unknown size that might exceed its budget."""
    for grid in accounts:
        if grid.budget_status == "unclear":
            raise OsoError(
                f"{grid.name}: its rows do not say how many runs its grid has; {grid.runs} of them "
                f"would exceed the budget of {grid.epsilon:g}: pass the study's plan with --plan"
            )


def most_expensive(accounts: Iterable[GridAccount]) -> dict[str, GridAccount]:
    """For each data set the grid with the largest ratio of spent epsilon to budget.

    Searches by random stopping are left out: only the RDP accountant supports them.
    """
    by_dataset: dict[str, GridAccount] = {}
    for grid in accounts:
        if grid.search_accounting == RANDOM_STOPPING:
            continue
        best = by_dataset.setdefault(grid.dataset, grid)
        if grid.spent / grid.epsilon > best.spent / best.epsilon:
            by_dataset[grid.dataset] = grid
    return by_dataset


def accounts_table(accounts: Sequence[GridAccount], all_accountants: bool = False) -> pd.DataFrame:
    """One row per grid: grid, budget, delta, runs, stored, seeds, rdp, pld, prv, verdict.

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
                "grid": grid.name,
                "budget": grid.epsilon,
                "delta": grid.delta,
                "runs": grid.runs,
                "stored": grid.stored,
                "seeds": grid.seeds,
                "rdp": grid.spent,
                "pld": grid.spent_by("pld") if check else math.nan,
                "prv": grid.spent_by("prv") if check else math.nan,
                "verdict": grid.budget_status,
            }
        )
    return pd.DataFrame(rows)


def _account_grid(rows: pd.DataFrame) -> GridAccount:
    first = rows.to_dict("records")[0]
    delta = float(first["delta"])
    ledgers = {row["run_id"]: parse_ledger(row) for row in records(rows)}
    alone = first["search_accounting"] == SINGLE
    # Points of all seeds: more points than the grid has mean a larger grid, spread over seeds.
    size = 1 if alone else max(int(first["grid_runs"]), len(rows[POINT].drop_duplicates()))
    filler = full_run_ledger(list(ledgers.values()), int(first["steps"]))
    stopped = None  # cost of a search by random stopping
    if first["search_accounting"] == RANDOM_STOPPING:
        stopped = compute_random_stopping_epsilon(
            filler, size, STOPPING_ETA[first["stopping_distribution"]], delta
        )
    charged: list[tuple[float, int, tuple[Ledger, ...]]] = []
    for _, together in rows.groupby("run_id" if alone else "seed"):
        stored = [pad_to_full_run(ledgers[run_id], filler) for run_id in together["run_id"]]
        whole = (*stored, *[filler] * (size - len(stored)))
        spent = compute_epsilon(whole, delta) if stopped is None else stopped
        charged.append((spent, len(stored), whole))
    # If the stored runs alone exceed the budget, the size of their grid does not matter.
    known = alone or stopped is not None or rows["model"].notna().all()
    least = (
        0.0 if known else max(compute_epsilon(whole[:count], delta) for _, count, whole in charged)
    )
    spent, count, whole = max(charged, key=lambda part: part[0])
    return GridAccount(
        dataset=first["dataset"],
        method=first["method"],
        k=int(first["k"]),
        epsilon=float(first["epsilon"]),
        delta=delta,
        runs=len(whole),
        stored=count,
        seeds=rows["seed"].nunique(),
        spent=spent,
        ledgers=whole,
        search_accounting=first["search_accounting"],
        ambiguity=not known and least <= float(first["epsilon"]) * (1 + ROUNDING),
    )


def _complete_options(row: Row, cohort: Cohort | None) -> Row:
    """The row with its options, or `_TERMS` at least, if they are unknown.

    From the plan, else as in `account_grids`.
    """
    if cohort is not None and row["model"] is None:
        return row | cohort.columns
    check_identity(row)
    row = row | {"grid_runs": row["grid_runs"] or default_grid_size(row["method"], int(row["k"]))}
    if row["search_accounting"] == RANDOM_STOPPING and row["stopping_distribution"] is None:
        sampling = PoissonSampling.of(row["batch_size"], row["examples"])
        search = Search(sampling, int(row["steps"]), row["grid_runs"], row["search_accounting"])
        shape = _shape(search, row["noise_multiplier"], row["epsilon"], row["delta"])
        return row | {"stopping_distribution": shape}
    return row


@cache
def _shape(search: Search, nu: float, epsilon: float, delta: float) -> str:
    paid_for = infer_stopping_distribution(search, nu, epsilon, delta)
    return paid_for or max(
        STOPPING_ETA,
        key=lambda name: replace(search, stopping_eta=STOPPING_ETA[name]).epsilon(nu, delta),
    )
