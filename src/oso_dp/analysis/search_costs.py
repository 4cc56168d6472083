"""Noise multipliers of a study's searches under the paper's accounting and tighter accounting.

Computing them takes up to a minute for a study. `oso plan --search-noise-csv FILE` stores them; a
report reads them from its results folder and computes only the missing ones.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    RANDOM_STOPPING,
    AnySearch,
    find_search_accounting,
)
from oso_dp.analysis.noise_tables import noise_multipliers
from oso_dp.analysis.result_set import ResultSet, list_grids
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.schema import EVALUATIONS, RUNS
from oso_dp.results.write import writing
from oso_dp.study.plan import read_plan

COSTS_FILE = "search_noise.csv"  # in a results folder
EPSILON = 3.0  # the paper's smallest budget on two of its data sets


@dataclass(frozen=True)
class AccountingRule:
    """A combination of search accounting, accountant and stopping distribution."""

    search_accounting: str
    accountant: str
    distribution: str  # of the number of runs under random stopping; empty under composition
    label: str
    heading: str

    def search(self, sampling: PoissonSampling, steps: int, runs: int) -> AnySearch:
        options = {"stopping_distribution": self.distribution or None}
        return find_search_accounting(self.search_accounting).search(sampling, steps, runs, options)


RULES = (
    AccountingRule(COMPOSITION, "rdp", "", "all N runs, RDP, as in the paper", "all N, RDP"),
    AccountingRule(COMPOSITION, "pld", "", "all N runs, PLD", "all N, PLD"),
    AccountingRule(RANDOM_STOPPING, "rdp", "poisson", "random stopping, Poisson", "Poisson"),
    AccountingRule(RANDOM_STOPPING, "rdp", "geometric", "random stopping, geometric", "geometric"),
    AccountingRule(
        RANDOM_STOPPING, "rdp", "logarithmic", "random stopping, logarithmic", "logarithmic"
    ),
)

COLUMNS = [
    *("dataset", "epsilon", "delta", "sampling_rate", "steps", "runs", "grids"),
    *("search_accounting", "accountant", "distribution", "noise_multiplier"),
]


# Columns that determine a search's noise; the last is the version of dp_accounting.
KEY = [
    *("sampling_rate", "steps", "runs", "epsilon", "delta"),
    *("search_accounting", "accountant", "distribution", "dp_accounting"),
]
_NOISE = "noise_multiplier"


@dataclass(frozen=True)
class CostSetting:
    """What determines a data set's search costs besides the number of runs."""

    sampling: PoissonSampling
    steps: int  # of one run
    delta: float
    epsilon: float


def cost_setting(study: ResultSet, dataset: str) -> CostSetting | None:
    """The cost setting from the budget if complete, else from the rows; None without either.

    If a data set has several settings, the most frequent one. epsilon: the smallest of the study
    that is >= `EPSILON`, else the largest.
    """
    noise = _grids(study)
    epsilons = sorted(noise.loc[noise["dataset"] == dataset, "epsilon"].unique())
    budget = study.budget[study.budget["dataset"] == dataset]
    rows = study.runs[study.runs["dataset"] == dataset]
    rows = rows.assign(sampling_rate=rows["batch_size"] / rows["examples"])
    facts = ["sampling_rate", "steps", "delta"]
    for known in (budget, rows):
        known = known.dropna(subset=facts)  # NoDP has no delta
        known = known[known["steps"] >= 1]
        if len(known) and epsilons:
            rate, steps, delta = known[facts].value_counts().index[0]
            return CostSetting(
                PoissonSampling(float(rate)),
                int(steps),
                float(delta),
                float(next((e for e in epsilons if e >= EPSILON), epsilons[-1])),
            )
    return None


def _grids(study: ResultSet) -> pd.DataFrame:
    """Every private grid of the results, or of the plan if there are no results."""
    if len(study.runs):
        return noise_multipliers(study)
    planned = study.budget.dropna(subset=["epsilon", "noise_multiplier"])
    return planned.rename(columns={"runs": "grid_size"})


def grids(study: ResultSet, dataset: str) -> dict[int, dict[int, list[str]]]:
    """N -> k -> the methods whose grid on the data set has that size."""
    noise = _grids(study)
    noise = noise[noise["dataset"] == dataset]
    sizes: dict[int, dict[int, list[str]]] = {}
    for row in noise.drop_duplicates(["k", "method"]).itertuples():
        sizes.setdefault(int(row.grid_size), {}).setdefault(int(row.k), []).append(row.method)
    return dict(sorted(sizes.items()))


def grids_at_largest_k(study: ResultSet, dataset: str) -> dict[int, list[str]]:
    """N -> the methods whose grid has that size at the study's largest k."""
    sizes = grids(study, dataset)
    largest = max((k for at in sizes.values() for k in at), default=0)
    return {n: at[largest] for n, at in sizes.items() if largest in at}


def search_costs(study: ResultSet) -> pd.DataFrame:
    """One row per data set, number of runs and rule, columns `COLUMNS`.

    For a single run (without random stopping) and for every grid size of the study. NaN: no noise
    multiplier meets the budget. Data sets that are not public are left out: their search accounting
    is fixed.
    """
    rows = []
    for dataset in labels.sort_datasets(_grids(study)["dataset"].unique()):
        at, sizes = cost_setting(study, dataset), grids(study, dataset)
        if at is None or dataset in study.shared_budgets:
            continue
        for runs in sorted({1, *sizes}):
            for rule in RULES:
                if runs == 1 and rule.search_accounting == RANDOM_STOPPING:
                    continue
                search = rule.search(at.sampling, at.steps, runs)
                rows.append(
                    {
                        "dataset": dataset,
                        "epsilon": at.epsilon,
                        "delta": at.delta,
                        "sampling_rate": at.sampling.rate,
                        "steps": at.steps,
                        "runs": runs,
                        "grids": name_grid_sizes(sizes.get(runs, {})),
                        "search_accounting": rule.search_accounting,
                        "accountant": rule.accountant,
                        "distribution": rule.distribution or None,
                    }
                )
                known = study.costs.get(_key(rows[-1]))
                rows[-1]["noise_multiplier"] = (
                    _noise_multiplier(search, at.epsilon, at.delta, rule.accountant)
                    if known is None
                    else known
                )
    return pd.DataFrame(rows, columns=COLUMNS)


def _key(row: Mapping[Any, Any]) -> tuple[object, ...]:
    distribution = "" if pd.isna(row["distribution"]) else row["distribution"]
    library = {"dp_accounting": version("dp-accounting"), "distribution": distribution}
    return tuple({**row, **library}[name] for name in KEY)


def write_costs(plan: Path, path: Path) -> None:
    """Write the noise of every search of a plan under every rule to a CSV file.

    `read_costs` reads it. Existing rows are kept and not recomputed, including rows that another
    process adds meanwhile.
    """
    runs, evaluations = (schema.empty_table().to_pandas() for schema in (RUNS, EVALUATIONS))
    costs = search_costs(
        ResultSet(runs, evaluations, list_grids([read_plan(plan)]), read_costs(path))
    )
    priced = {_key(row): row["noise_multiplier"] for row in costs.to_dict("records")}
    with writing(path):
        noise = read_costs(path) | priced
        table = pd.DataFrame([(*key, nu) for key, nu in noise.items()], columns=[*KEY, _NOISE])
        with atomic_write(path) as file:
            file.write(table.to_csv(index=False, lineterminator="\n").encode())


def read_costs(path: Path) -> dict[tuple[object, ...], float]:
    """Read the file of `write_costs`; empty without a file.

    NaN where no noise multiplier meets the budget. The version of dp_accounting is part of the key,
    so rows of other versions are not used. Raises OsoError for a malformed file.
    """
    if not path.exists():
        return {}
    check_regular(path)
    try:
        rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines(), strict=True)
        noise = {_stored_key(row): float(row["noise_multiplier"] or "nan") for row in rows}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise OsoError(
            f"{path}: not a table of search costs ({' '.join(repr(error).split())}); "
            "`oso plan --search-noise-csv` writes one"
        ) from None
    if not noise:
        raise OsoError(
            f"{path}: not a table of search costs (no rows); "
            "`oso plan --search-noise-csv` writes one"
        )
    return noise


def _stored_key(row: Mapping[str, str]) -> tuple[object, ...]:
    types = {**dict.fromkeys(("sampling_rate", "epsilon", "delta"), float), "steps": int}
    return tuple({**types, "runs": int}.get(name, str)(row[name]) for name in KEY)


@cache  # data sets, the table and the figures share searches
def _noise_multiplier(search: AnySearch, epsilon: float, delta: float, accountant: str) -> float:
    try:
        return search.noise_multiplier(epsilon, delta, accountant)
    except OsoError:
        return math.nan


def select_rule(costs: pd.DataFrame, rule: AccountingRule) -> pd.Series:
    """The noise multipliers of one data set under one rule, indexed by the number of runs."""
    same = (costs["search_accounting"] == rule.search_accounting) & (
        costs["accountant"] == rule.accountant
    )
    same &= costs["distribution"].fillna("") == rule.distribution
    return costs[same].set_index("runs")["noise_multiplier"]


def name_grid_sizes(of_size: dict[int, list[str]]) -> str:
    parts = [
        f"{', '.join(map(labels.method_label, methods))} (k = {k})"
        for k, methods in of_size.items()
    ]
    return "; ".join(parts) or "a single run"
