"""What searches by the linear scaling rule cost, by their ledgers: one account for all parts.

A search is all runs of all its trials, and one final run, of one seed. The rows have a final run
at every point of the grid, of which a search releases one: the costliest is charged. What is not
stored is charged, too: in a part of which there are rows with the least noise of those, else with
the noise that the budget asks for.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from oso_dp.accounting.accountants import epsilon_of
from oso_dp.accounting.scaled_search import ScaledSearch
from oso_dp.accounting.trial_shares import FINAL
from oso_dp.accounting.tuning import LINEAR_SCALING
from oso_dp.analysis.charges import GridAccount, completed, whole_run
from oso_dp.analysis.keys import POINT
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.row_claims import ledger_of, settings_of

# Runs that are alike in these, and in their settings but for the part, are one search (its points,
# its parts and its seeds).
_SEARCH = [
    *("dataset", "method", "k", "epsilon", "delta", "momentum"),
    *("examples", "batch_size", "epochs", "steps", "precision"),
]


def scaled_accounts(rows: pd.DataFrame) -> list[GridAccount]:
    """One for each search, in the order of the rows.

    rows: of the table `runs`, all by the linear scaling rule, without complaint. OsoError for one
    whose identity is not that of what it says.
    """
    said = [settings_of(row) for row in rows.to_dict("records")]
    told = rows.assign(
        part=[one["part"] for one in said],
        trial_shares=[tuple(one["trial_shares"]) for one in said],
        grid_runs=[one["grid_runs"] for one in said],
        choices=[choices_of(one) for one in said],
    )
    groups = told.groupby([*_SEARCH, "choices"], dropna=False, sort=False)
    return [_account(search) for _, search in groups]


def choices_of(said: dict[str, Any]) -> str:
    """What the settings say of a whole search: all but the part."""
    return json.dumps({name: said[name] for name in said if name != "part"}, sort_keys=True)


def _account(rows: pd.DataFrame) -> GridAccount:
    first = rows.to_dict("records")[0]
    epsilon, delta = float(first["epsilon"]), float(first["delta"])
    sampling = PoissonSampling.of(first["batch_size"], first["examples"])
    steps = int(first["steps"])
    search = ScaledSearch(sampling, steps, int(first["grid_runs"]), first["trial_shares"])
    parts = {name: part for name, part in rows.groupby("part")}
    fillers = {
        part: whole_run([ledger_of(row) for row in parts[part].to_dict("records")], steps)
        if part in parts
        else _as_planned(search, part, epsilon, delta)
        for part in search.parts
    }
    charged = []
    for _, seed in rows.groupby("seed"):
        count, whole = 0, []
        for part in search.parts:
            of_part = seed[seed["part"] == part].to_dict("records")
            stored = [completed(ledger_of(row), fillers[part]) for row in of_part]
            size = search.runs
            if part == FINAL:
                size = 1
                stored = sorted(stored, key=lambda one: epsilon_of([one], delta))[-1:]
            elif part in parts:  # more points than the grid has are a larger grid
                size = max(size, len(parts[part][POINT].drop_duplicates()))
            count += len(stored)
            whole += [*stored, *[fillers[part]] * (size - len(stored))]
        charged.append((epsilon_of(whole, delta), count, tuple(whole)))
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
        tuning_accounting=LINEAR_SCALING,
    )


def _as_planned(search: ScaledSearch, part: str, epsilon: float, delta: float) -> Ledger:
    """A run of a part that nothing is stored of, with the noise that the budget asks for."""
    nu = search.noise_multipliers(epsilon, delta)[search.parts.index(part)]
    return Ledger(search.sampling, [((SumQuery("not_stored", nu),), search.steps)])
