"""Privacy accounts of searches by the linear scaling rule: one account for all stages.

A search consists of all runs of all its trials and one final run, under one seed. The rows have a
final run at every point of the grid; a search releases one of them, and the most expensive is
charged. Runs that are not stored are charged as well: with the smallest noise of their stage's
stored rows, else with the noise that the budget requires.
"""

from __future__ import annotations

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.linear_scaling import LinearScalingSearch
from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.search_accounting import FINAL_STAGE
from oso_dp.analysis.accounts import GridAccount, full_run_ledger, pad_to_full_run
from oso_dp.analysis.values import POINT
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import check_identity, parse_ledger, records
from oso_dp.study.identity import OPTIONS, parse_trial_fractions

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
