"""Privacy accounts of data sets that are not public: one epsilon for all methods, grids and seeds.

Runs of one study share their noise, which was calibrated for `budget_runs` of them: that many are
charged, including runs that are not stored, or more if more are stored. Several studies of a data
set add up. Rows do not name their study: two studies with the same noise, budget and sizes cannot
be distinguished from one if their rows together are no more than one of them plans.
`results.conflicts` keeps two such studies out of one store; rows merged by hand must be added up
by the user.
"""

import pandas as pd

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.analysis.accounts import GridAccount, full_run_ledger, pad_to_full_run
from oso_dp.privacy.ledger import Ledger
from oso_dp.results.checks import check_identity, parse_ledger, protected, records

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
