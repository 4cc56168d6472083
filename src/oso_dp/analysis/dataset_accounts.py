"""Privacy accounts of data sets that are not public: one epsilon for all methods, grids and seeds.

Runs of one study share their noise, which was calibrated for `budget_runs` of them: that many are
charged, including runs that are not stored, or more if more are stored. Several studies of a data
set add up. Rows do not name their study: two studies with the same noise, budget and sizes cannot
be distinguished from one if their rows together are no more than one of them plans.
`results.conflicts` keeps two such studies out of one store; rows merged by hand must be added up
by the user.
"""

from typing import Any

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.analysis.grid_account import GridAccount, full_run_ledger, pad_to_full_run
from oso_dp.files import parse_json
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.checks import budget_runs, parse_ledger, parse_run_options, protected, records

# Runs that differ in one of these belong to different studies.
_STUDY = [
    *("noise_multiplier", "epsilon", "delta", "examples", "batch_size", "epochs"),
    *("budget_runs", "data_version"),
]


def counts_to_total(runs: pd.DataFrame) -> pd.Series:
    """Mask of the rows of the table `runs` that count towards their data set's total.

    Rows without settings, or whose run_id does not cover them, are charged to the total if their
    data set has one.
    """
    is_private = protected(runs)
    texts = runs["settings"]
    says = {text: "grid_runs" in parse_json(text) for text in texts.dropna().unique()}
    unknown = ~texts.map(says).astype(object).fillna(False).astype(bool)
    unknown &= runs["dataset"].isin(set(runs.loc[is_private, "dataset"]))
    return is_private | unknown


def account_datasets(runs: pd.DataFrame) -> list[GridAccount]:
    """One account per data set; runs: the rows that `counts_to_total`.

    Budget and delta are the smallest of the rows. Raises OsoError for a row whose run_id does not
    match its values.
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
    """Full runs: as many as the noise was calibrated for, or as are stored if more."""
    ledgers = [parse_ledger(row) for row in records(study)]
    filler = full_run_ledger(ledgers, int(study["steps"].iloc[0]))
    size = max(int(study["budget_runs"].iloc[0]), len(ledgers))
    return [
        *(pad_to_full_run(ledger, filler) for ledger in ledgers),
        *[filler] * (size - len(ledgers)),
    ]


def _total_key(row: dict[str, Any]) -> dict[str, Any]:
    parse_run_options(row)  # raises an error if the run_id does not cover the settings
    declared = {} if pd.isna(row["settings"]) else parse_json(row["settings"])
    return {
        "budget_runs": budget_runs(declared) or 0,
        "data_version": declared.get("data_version") or "",
    }
