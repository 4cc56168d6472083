"""The store: parts, and what they add up to.

A store's tables are folders with one file for each cohort, named by the cohort and by a hash of all
that tells it from others of that name. So what is added to one cohort leaves every other file as it
is. A change is made ready in `.staging`, decided by one renaming to `.pending`, and then moved into
its place; a kill at any moment leaves the store as it was before or as it is after, and the next
collect takes up what is left.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.files import reason
from oso_dp.results.lock import only_writer
from oso_dp.results.read import PENDING, Results, read_results, run_ids
from oso_dp.results.schema import KEYS, SCHEMAS
from oso_dp.results.write import write_table
from oso_dp.study.identity import POINT, cohort_id, cohort_name

STAGING = ".staging"
# What may differ where a run was trained twice with one outcome; its identity covers `settings`,
# which rows of older versions may lack.
_WHERE_IT_RAN = [
    *("device", "commit", "torch_version", "package_version", "code_hash", "wall_seconds"),
    "settings",
]


def collect(
    parts: Iterable[Path],
    store: Path,
    expected: Iterable[str] = (),
    check: Callable[[pd.DataFrame], None] = lambda runs: None,
) -> Results:
    """Add the parts (folders with runs.parquet and evaluations.parquet) to the store.

    A run that the store or another part already holds is counted once. If two differ in what they
    measured, or a run of `expected` (by run_id) is in none of them, OsoError names the run and
    nothing is written. `check` may refuse, too: it is given all runs of the cohorts that would
    change, by name. Several may collect into one store: each waits for its turn.
    """
    added = [read_results(part) for part in parts]
    with only_writer(store):
        _finish(store)
        there = [path for path in _tables(store) if path.exists()]
        results = [read_results(store)] if there else []
        held = set(results[0].runs["run_id"]) if results else set[str]()
        results += added
        if not results:
            raise OsoError(f"{store}: no results and no parts to collect")
        merged = _merged(store, results, expected)
        # One file for everything becomes a folder, as all stores are now.
        new = set(merged.runs["run_id"]) - (set() if any(map(Path.is_file, there)) else held)
        _change(store, merged, new, not there, check)
        return merged


def finished_runs(store: Path) -> set[str]:
    """Identities of the runs that the store already holds."""
    runs = store / "runs.parquet"
    return run_ids(store) if runs.exists() or (store / PENDING).exists() else set()


def _tables(store: Path) -> list[Path]:
    return [store / f"{kind}.parquet" for kind in SCHEMAS]


def _merged(store: Path, results: list[Results], expected: Iterable[str]) -> Results:
    runs = pd.concat([result.runs for result in results], ignore_index=True)
    _refuse_contradictions(store, runs)
    runs = runs.drop_duplicates("run_id", keep="first", ignore_index=True)
    missing = set(expected) - set(runs["run_id"])
    if missing:
        raise OsoError(
            f"{store}: {len(missing)} planned runs are neither there nor in the parts (the first "
            f"is {min(missing)}); remove the study's folder `parts` and train again"
        )
    evaluations = pd.concat([result.evaluations for result in results], ignore_index=True)
    evaluations = evaluations.drop_duplicates(ignore_index=True)
    repeated = evaluations.duplicated(KEYS["evaluations"])
    if repeated.any():
        raise _contradiction(store, evaluations.loc[repeated, "run_id"].iloc[0])
    return Results(runs, evaluations)


def _refuse_contradictions(store: Path, runs: pd.DataFrame) -> None:
    """What a run was and how it ended must be the same wherever it stands."""
    different = runs.drop(columns=_WHERE_IT_RAN).drop_duplicates()
    repeated = different.duplicated("run_id")
    if repeated.any():
        raise _contradiction(store, different.loc[repeated, "run_id"].iloc[0])


def _contradiction(store: Path, run: str) -> OsoError:
    return OsoError(
        f"{store}: run {run} was measured twice with different outcomes; move the rows of one "
        "of them away first"
    )


def _change(
    store: Path,
    merged: Results,
    new: set[str],
    first: bool,
    check: Callable[[pd.DataFrame], None],
) -> None:
    """Write the cohorts that have a new run, and no other."""
    files = _file_names(merged.runs)
    changed = set(files[merged.runs["run_id"].isin(new)])
    if not changed and not first:
        return
    names = files.str.rsplit(".", n=2).str[0]  # without the hash, the cohort's
    try:
        check(merged.runs[names.isin(set(names[files.isin(changed)]))])
    except OsoError as error:
        raise OsoError(f"{store}, with these parts: {error}") from None
    staging = store / STAGING
    of_run = pd.Series(files.to_numpy(), index=merged.runs["run_id"])
    tables = {
        "evaluations": merged.evaluations.assign(file=merged.evaluations["run_id"].map(of_run)),
        "runs": merged.runs.assign(file=files),
    }
    order = {"evaluations": KEYS["evaluations"], "runs": [*POINT, "seed", "run_id"]}
    try:
        for kind, rows in tables.items():
            rows = rows[rows["file"].isin(changed)].sort_values(order[kind])
            here = dict(list(rows.groupby("file")))
            # A table without a row is a file, too: its columns are.
            for name in changed or {"none.parquet"}:
                write_table(staging / f"{kind}.parquet" / name, kind, here.get(name, rows[:0]))
        os.replace(staging, store / PENDING)
    except OSError as error:
        raise OsoError(f"{store}: cannot be changed ({reason(error)})") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _finish(store)


def _file_names(runs: pd.DataFrame) -> pd.Series:
    """For each run the name of its cohort's file."""
    names = [
        f"{cohort_name(row)}.{cohort_id(row)}.parquet"
        for row in runs.astype(object).where(runs.notna(), None).to_dict("records")
    ]
    return pd.Series(names, index=runs.index, dtype=object)


def _finish(store: Path) -> None:
    """Move a change that is decided into its place, and clear away one that is not."""
    pending = store / PENDING
    try:
        for table in _tables(store):
            changed = sorted((pending / table.name).glob("*.parquet"))
            if changed and table.is_file():  # all its rows are among them
                table.unlink()
            for path in changed:
                table.mkdir(exist_ok=True)
                os.replace(path, table / path.name)
        for folder in (pending, store / STAGING):
            if folder.exists():
                shutil.rmtree(folder)
    except OSError as error:
        raise OsoError(f"{store}: cannot be changed ({reason(error)})") from error
