"""What is stored of data that are not public costs one epsilon: all methods, grids and seeds.

Runs of one study share their noise, which was computed for `budget_runs` of them: as many are
charged, also those that are not stored, or more where more are stored. Several studies of a data
set add up. Rows do not say whose study they are of: two of the same noise, budget and sizes whose
rows together are no more than one of them plans cannot be told from one.
`results.conflicts` keeps such two out of a store; rows put together by hand have to be added up.
"""

from typing import Any

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.analysis.grid_account import GridAccount, full_run_ledger, pad_to_full_run
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.checks import budget_runs, ledger_of, protected, records, settings_of

# Runs that differ in any of it were not of one study.
_STUDY = [
    *("noise_multiplier", "epsilon", "delta", "examples", "batch_size", "epochs"),
    *("budget_runs", "data_version"),
]


def counts_to_total(runs: pd.DataFrame) -> pd.Series:
    """Of each row of the table `runs` whether it counts towards its data set's total.

    Rows of which nobody knows more, or whose identity does not cover what they say, are charged to
    the total, if their data set has one.
    """
    is_private = protected(runs)
    texts = runs["settings"]
    says = {text: "grid_runs" in parse_json(text) for text in texts.dropna().unique()}
    unknown = ~texts.map(says).astype(object).fillna(False).astype(bool)
    unknown &= runs["dataset"].isin(set(runs.loc[is_private, "dataset"]))
    return is_private | unknown


def account_datasets(runs: pd.DataFrame) -> list[GridAccount]:
    """One account per data set; runs: those `of_totals`.

    Budget and delta are the smallest that a row names. OsoError for a row whose identity is not
    that of its values.
    """
    return [_total(str(name), rows) for name, rows in runs.groupby("dataset", sort=False)]


def _total(dataset: str, rows: pd.DataFrame) -> GridAccount:
    declared = [_total_key(row) for row in records(rows)]
    rows = rows.join(pd.DataFrame(declared, index=rows.index))
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
    """Whole runs, as many as the study's noise was computed for, or as there are."""
    ledgers = [ledger_of(row) for row in records(study)]
    filler = full_run_ledger(ledgers, int(study["steps"].iloc[0]))
    size = max(int(study["budget_runs"].iloc[0]), len(ledgers))
    return [
        *(pad_to_full_run(ledger, filler) for ledger in ledgers),
        *[filler] * (size - len(ledgers)),
    ]


def _total_key(row: dict[str, Any]) -> dict[str, Any]:
    settings_of(row)  # which refuses a row whose identity does not cover what it says
    declared = {} if pd.isna(row["settings"]) else parse_json(row["settings"])
    return {
        "budget_runs": budget_runs(declared) or 0,
        "data_version": declared.get("data_version") or "",
    }
