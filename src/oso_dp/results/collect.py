"""Merging shards into a results store, crash-safe.

A store's tables are folders with one file per cohort, named by the cohort and a hash of its
identity, so that new runs of one cohort change one file. A change is written to `.staging`,
committed by one renaming to `.pending`, and then moved to its place. A kill at any moment leaves
the store as before or as after; the next collect completes it.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error
from oso_dp.locks import only_writer
from oso_dp.results.checks import protected, records
from oso_dp.results.read import (
    PENDING,
    Results,
    check_clear,
    read_files,
    read_results,
)
from oso_dp.results.schema import KEYS, SCHEMAS
from oso_dp.results.write import write_table
from oso_dp.study.identity import OPTIONS, POINT, make_cohort_id, make_cohort_name

STAGING = ".staging"
# Columns that may differ if a run was trained twice with one outcome; the identity covers the
# options, of which rows of older versions may lack the defaults.
_WHERE_IT_RAN = [
    *("device", "commit", "torch_version", "package_version", "code_hash", "wall_seconds"),
    *OPTIONS,
]


def collect(
    parts: Iterable[Path],
    store: Path,
    expected: Iterable[str] = (),
    check: Callable[[pd.DataFrame], None] = lambda runs: None,
) -> Results:
    """Add shards (folders with runs.parquet and evaluations.parquet) to the store.

    Several processes may collect into one store; each waits for the others. A run in several
    places counts once. A shard completes a run of which the store has only some rows.

    Args:
        parts: the shards.
        store: the results store; created if missing.
        expected: run_ids that must be in the result.
        check: raises OsoError to prevent the change; it gets all runs of the cohorts that would
            change, and all runs on data sets that are not public.

    Raises:
        OsoError: if two rows of a run differ, or a run of `expected` is missing; nothing is
            written then.
    """
    added = [read_results(_part(part)) for part in parts]
    with only_writer(store):
        _recover(store)
        stored = {kind: read_files(store / f"{kind}.parquet", kind) for kind in SCHEMAS}
        results = [Results(**{kind: _table(kind, stored[kind].values()) for kind in SCHEMAS})]
        merged = _merged(store, results + added, expected)
        check_clear(store, merged)
        _change(store, merged, stored, check)
        return merged


def _part(folder: Path) -> Path:
    """OsoError for a folder of shards, which must be named one by one."""
    below = sorted(
        path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/runs.parquet")
    )
    if below and not (folder / "runs.parquet").exists():
        raise OsoError(
            f"{folder}: not a shard but a folder of {len(below)}; name each, as {below[0]}"
        )
    return folder


def _tables(store: Path) -> list[Path]:
    return [store / f"{kind}.parquet" for kind in SCHEMAS]


def _table(kind: str, frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    empty = SCHEMAS[kind].empty_table().to_pandas()
    return pd.concat([*frames] or [empty], ignore_index=True)


def _merged(store: Path, results: list[Results], expected: Iterable[str]) -> Results:
    runs = pd.concat([result.runs for result in results], ignore_index=True)
    _refuse_contradictions(store, runs)
    runs = runs.drop_duplicates("run_id", keep="first", ignore_index=True)
    missing = set(expected) - set(runs["run_id"])
    if missing:
        planned = f"{len(missing)} planned runs are" if len(missing) > 1 else "1 planned run is"
        raise OsoError(
            f"{store}: {planned} neither there nor in the named shards (the first is "
            f"{min(missing)}); name further shards, or train the missing runs"
        )
    evaluations = pd.concat([result.evaluations for result in results], ignore_index=True)
    evaluations = evaluations.drop_duplicates(ignore_index=True)
    # A shard may have class accuracies that a row of an older version lacks.
    measured = evaluations.columns.drop("class_accuracy")
    older = evaluations["class_accuracy"].isna() & evaluations.duplicated(measured, keep=False)
    evaluations = evaluations[~older].reset_index(drop=True)
    repeated = evaluations.duplicated(KEYS["evaluations"])
    if repeated.any():
        raise _contradiction(store, evaluations.loc[repeated, "run_id"].iloc[0], runs)
    return Results(runs, evaluations)


def _refuse_contradictions(store: Path, runs: pd.DataFrame) -> None:
    """All rows of a run must agree on its options and its outcome.

    Where data are protected also on where it ran: another training is another release, even if both
    diverged alike (on one machine, with one package and commit, their rows are then the same).
    """
    is_private = runs["run_id"].isin(runs.loc[protected(runs), "run_id"])
    public = runs[~is_private].drop(columns=_WHERE_IT_RAN).drop_duplicates()
    different = pd.concat([public, runs[is_private].drop_duplicates()])
    repeated = different.duplicated("run_id")
    if repeated.any():
        raise _contradiction(store, different.loc[repeated, "run_id"].iloc[0], runs)


def _contradiction(store: Path, run: str, runs: pd.DataFrame) -> OsoError:
    if protected(runs[runs["run_id"] == run]).any():
        return OsoError(
            f"{store}: run {run} was trained twice on private data; both trainings "
            "were released and count; add up their epsilons and deltas, and keep the second in "
            "another store"
        )
    return OsoError(
        f"{store}: run {run} was measured twice with different outcomes; remove the rows of one "
        "of them"
    )


def _change(
    store: Path,
    merged: Results,
    stored: Mapping[str, Mapping[str, pd.DataFrame]],
    check: Callable[[pd.DataFrame], None],
) -> None:
    """Write the files of changed cohorts, all in one step.

    A file of another name whose rows move to their cohort's file changes too: it becomes empty.
    """
    files = _file_names(merged.runs)
    of_run = dict(zip(merged.runs["run_id"], files, strict=True))
    order = {"evaluations": KEYS["evaluations"], "runs": [*POINT, "seed", "run_id"]}
    tables = {kind: getattr(merged, kind) for kind in order}
    tables = {kind: rows.assign(file=rows["run_id"].map(of_run)) for kind, rows in tables.items()}
    changed = {name for kind in order for name in _changed_files(tables[kind], stored[kind])}
    # A store of one file becomes a folder.
    changed -= {table.name for table in _tables(store) if table.is_file()}
    if not changed and all(stored.values()):
        return
    names = files.str.rsplit(".", n=2).str[0]  # the cohorts' names, without the hash
    touched = names.isin(set(names[files.isin(changed)]))
    is_private = protected(merged.runs)  # new rows may lack the declaration
    of_one_budget = {*merged.runs.loc[touched, "dataset"]} & {
        *merged.runs.loc[is_private, "dataset"]
    }
    try:
        check(merged.runs[touched | merged.runs["dataset"].isin(of_one_budget)])
    except OsoError as error:
        raise OsoError(f"{store}, with these shards: {error}") from None
    staging = store / STAGING
    try:
        for kind, rows in tables.items():
            here = dict(list(rows.sort_values(order[kind]).groupby("file")))
            # An empty table is a file with columns.
            for name in changed or {"none.parquet"}:
                write_table(staging / f"{kind}.parquet" / name, kind, here.get(name, rows[:0]))
        os.replace(staging, store / PENDING)
    except OSError as error:
        raise OsoError(f"{store}: cannot be changed ({format_os_error(error)})") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _recover(store)


def _changed_files(rows: pd.DataFrame, stored: Mapping[str, pd.DataFrame]) -> set[str]:
    """Names of the files whose numbers of rows per run, or whose completeness, differ."""
    there = pd.concat([frame.assign(file=name) for name, frame in stored.items()] or [rows[:0]])
    key = ["file", "run_id", "complete"]
    counts = {
        name: table.assign(
            complete=table.get("class_accuracy", table["run_id"]).notna()
        ).value_counts(key)
        for name, table in {"wanted": rows, "present": there}.items()
    }
    both = pd.DataFrame(counts).fillna(0)
    different = both[both["wanted"] != both["present"]].index
    return {name for name, *_ in different}


def _file_names(runs: pd.DataFrame) -> pd.Series:
    """The file name of each run's cohort."""
    names = [f"{make_cohort_name(row)}.{make_cohort_id(row)}.parquet" for row in records(runs)]
    return pd.Series(names, index=runs.index, dtype=object)


def _recover(store: Path) -> None:
    """Move a committed change to its place, and remove an uncommitted one."""
    pending = store / PENDING
    try:
        for table in _tables(store):
            changed = sorted((pending / table.name).glob("*.parquet"))
            if changed and table.is_file():  # its rows are in the changed files
                table.unlink()
            for path in changed:
                table.mkdir(exist_ok=True)
                os.replace(path, table / path.name)
        for folder in (pending, store / STAGING):
            if folder.exists():
                shutil.rmtree(folder)
    except OSError as error:
        raise OsoError(f"{store}: cannot be changed ({format_os_error(error)})") from error
