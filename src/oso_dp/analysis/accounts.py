"""What the stored ledgers cost, grid by grid, against the budget that the rows claim.

Nothing is taken on trust but the ledgers and the terms of the search (the grid's size, how a random
number of runs is distributed): epsilon is computed anew from them. A grid's budget pays for N runs
of one seed each; seeds repeat a grid for statistics and are not charged (as in the paper), so that
a grid costs what its costliest seed does. Every run is charged for all its steps, also one that
diverged before: when it would was not known, and epsilon must hold however it had gone. Runs of the
grid that are not stored are charged with the least noise of those that are.

Searches that differ in any choice are grids of their own, if their plans or their rows say so; runs
of which nobody knows it are charged to each grid that they could be part of.

Under random stopping a search makes N runs on average and releases the best. Its privacy cost is
that release's, not that of all the rows: they are there so that the search's outcome can be
computed instead of drawn. Each run is charged as a whole run with the least noise of the stored.

Without a search (`single`) each row has the budget to itself, and an account is that of the
costliest. Whoever published several would pay for a composition: they stand there to be compared.

A search by the linear scaling rule has parts, and one account for all of them (`scaled_accounts`).

All this is for public data. A user's own data that are not public have one account for all that
was released of them (`total_accounts`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.search_accounting import LINEAR_SCALING, RANDOM_STOPPING, SINGLE
from oso_dp.accounting.tuning_cost import (
    STOPPING_ETA,
    Search,
    compute_random_stopping_epsilon,
    infer_stopping_distribution,
)
from oso_dp.analysis.dataset_accounts import account_datasets, counts_to_total
from oso_dp.analysis.grid_account import (
    BUDGET_TOLERANCE,
    GridAccount,
    full_run_ledger,
    pad_to_full_run,
)
from oso_dp.analysis.grouping import POINT
from oso_dp.analysis.linear_scaling_accounts import account_linear_scaling
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import check_planned, ledger_of, records, runs_complaint, settings_of
from oso_dp.study.cohort import Cohort
from oso_dp.study.grid import default_grid_size
from oso_dp.study.plan import Plan

# Runs that are alike in these are one grid (its points and its seeds).
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
_TERMS = ["grid_runs", "stopping_distribution"]  # what the rows do not say of their search
_OPTION_NAMES = "choices"  # whatever else was decided of it, as one text; null where nobody says


def account_grids(runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """Every private grid of the table `runs`, in its order; then every search by the linear scaling
    rule; then, of each data set that is not public, one account of all its runs.

    `plans` say how large each grid is, and how a random number of runs is distributed; for runs
    that none holds their column `settings` does. Where that is null, it is the whole grid for the
    method and k, and the distribution that the noise was bought for (`shape_paid_for`), or the
    costliest if it is that of none. Raises OsoError for a row that contradicts itself, its ledger
    or a plan.
    """
    planned = {
        run.run_id: (cohort, run)
        for plan in plans
        for cohort in plan.cohorts
        for run in cohort.runs
    }
    if text := runs_complaint(runs):
        raise OsoError(text)
    for row in records(runs):
        if row["run_id"] in planned:
            check_planned(row, *planned[row["run_id"]])
    shared = counts_to_total(runs)
    searched = runs["epsilon"].notna() & ~shared
    scaled = searched & (runs["search_accounting"] == LINEAR_SCALING)
    private = runs[searched & ~scaled]
    terms = pd.DataFrame(
        [_terms(row, planned.get(row["run_id"], (None,))[0]) for row in records(private)],
        columns=[*_TERMS, _OPTION_NAMES],
        index=private.index,
    )
    groups = private.join(terms).groupby([*_RUN_KEY, *_TERMS], dropna=False, sort=False)
    grids = [_account_grid(grid) for _, group in groups for grid in _group_by_options(group)]
    return grids + account_linear_scaling(runs[scaled]) + account_datasets(runs[shared])


def _group_by_options(group: pd.DataFrame) -> list[pd.DataFrame]:
    """One grid's rows each; those of which nobody knows the choices may be of any, so of each."""
    unknown = group[_OPTION_NAMES].isna()
    known = group.loc[~unknown, _OPTION_NAMES].unique()
    return [group[unknown | (group[_OPTION_NAMES] == choices)] for choices in known] or [group]


def account_store(results: Path, runs: pd.DataFrame, *plans: Plan) -> list[GridAccount]:
    """As `account`, of the runs of a folder, which an error names."""
    try:
        return account_grids(runs, *plans)
    except OsoError as error:
        raise OsoError(f"{results}: {error}") from None


def check_budgets(accounts: Iterable[GridAccount]) -> None:
    """OsoError that names the first grid above its budget."""
    for grid in accounts:
        if grid.budget_status == "exceeded":
            raise OsoError(
                f"{grid.name}: its ledgers cost epsilon {format_spent_epsilon(grid.spent)} at "
                f"delta {grid.delta!r} ({grid.runs} runs); the budget is {grid.epsilon:g}"
            )


def check_grid_sizes(accounts: Iterable[GridAccount]) -> None:
    """OsoError that names the first grid of which nobody says how large it is, if that matters."""
    for grid in accounts:
        if grid.budget_status == "unclear":
            raise OsoError(
                f"{grid.name}: its rows do not say how many runs its grid has; {grid.runs} of them "
                f"would exceed the budget of {grid.epsilon:g}: name the study's plan with --plan"
            )


def most_expensive(accounts: Iterable[GridAccount]) -> dict[str, GridAccount]:
    """For each data set the grid that comes nearest to its budget, or exceeds it most.

    Of those that more than one accountant can do: searches by random stopping are left out.
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

    pld and prv are NaN but for the costliest grid of each data set, unless `all_accountants`: they
    take about a second a grid. And NaN above the budget, where little noise would make it hours.
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
    ledgers = {row["run_id"]: ledger_of(row) for row in records(rows)}
    alone = first["search_accounting"] == SINGLE
    # Points under whatever seed: more than the grid has would be a larger grid, spread over seeds.
    size = 1 if alone else max(int(first["grid_runs"]), len(rows[POINT].drop_duplicates()))
    filler = full_run_ledger(list(ledgers.values()), int(first["steps"]))
    stopped = None  # what a search costs whose runs are drawn at random
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
    # Would the runs that are there exceed it, the size of their grid does not matter.
    known = alone or stopped is not None or rows[_OPTION_NAMES].notna().all()
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
        ambiguity=not known and least <= float(first["epsilon"]) * BUDGET_TOLERANCE,
    )


def _terms(row: dict[str, Any], cohort: Cohort | None) -> tuple[int, str | None, str | None]:
    """The size of a row's grid, the shape of its search, and its other choices.

    As planned, else as the row's `settings` say; else as `account` does.
    """
    choices = None if pd.isna(row["settings"]) else str(row["settings"])
    if cohort is not None:
        return cohort.grid_runs, cohort.stopping_distribution, choices or cohort.run_options
    options = settings_of(row)
    shape = options.get("stopping_distribution")
    if "grid_runs" in options and (shape is None) == (row["search_accounting"] != RANDOM_STOPPING):
        return options["grid_runs"], shape, choices
    size = default_grid_size(row["method"], int(row["k"]))
    if row["search_accounting"] != RANDOM_STOPPING:
        return size, None, choices
    sampling = PoissonSampling.of(row["batch_size"], row["examples"])
    search = Search(sampling, int(row["steps"]), size, row["search_accounting"])
    return size, _shape(search, row["noise_multiplier"], row["epsilon"], row["delta"]), choices


@cache
def _shape(search: Search, nu: float, epsilon: float, delta: float) -> str:
    paid_for = infer_stopping_distribution(search, nu, epsilon, delta)
    return paid_for or max(
        STOPPING_ETA,
        key=lambda name: replace(search, stopping_eta=STOPPING_ETA[name]).epsilon(nu, delta),
    )
