"""Reading results, with their schema and their completeness checked."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.files import check_name
from oso_dp.results.schema import KEYS, SCHEMA_VERSION, SCHEMAS, VERSIONS, schema_of

# In a store: a change that is decided, perhaps not yet in its place (see oso_dp.results.collect).
PENDING = ".pending"
_TRIES = 100  # of reading while others write
_A_MOMENT = 0.05  # seconds

# Files are called after these.
_NAMES = {"dataset", "method", "selection", "metric", "split"}

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """The two tables; columns as in oso_dp.results.schema."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame


def read_results(folder: Path) -> Results:
    """Read a folder, all of it or nothing, also while another command changes it.

    OsoError names a file that is missing, cut off or of another schema; a run that stands there
    twice, has no identity, or lacks its row or its evaluations, as where a part is missing.
    """

    def read() -> Results:
        tables = {kind: read_table(folder / f"{kind}.parquet", kind) for kind in SCHEMAS}
        results = Results(**tables)
        refuse_unclear(folder, results)
        return results

    return _while_still(folder, read)


def refuse_unclear(folder: Path, results: Results) -> None:
    """OsoError names a row or a run that `read_results` refuses."""
    for kind in SCHEMAS:
        _refuse_repeated(folder / f"{kind}.parquet", getattr(results, kind), KEYS[kind])
    runs, evaluated = results.runs, set(results.evaluations["run_id"].unique())
    unknown = evaluated - set(runs["run_id"])
    if unknown:
        raise OsoError(
            f"{folder}: evaluations of run {min(unknown)} have no row in runs.parquet; "
            "one of the two files is older or incomplete: collect the run's part again"
        )
    if unseen := _finished(runs) - evaluated:
        raise OsoError(
            f"{folder}: run {min(unseen)} is finished, but has no row in evaluations.parquet; "
            f"{len(unseen)} such runs: a part is missing, or one of the two files is older: "
            "collect their parts again"
        )


def _finished(runs: pd.DataFrame) -> set[str]:
    """Those that have to have evaluations; one that diverged may have none."""
    return set(runs.loc[runs["status"] == "finished", "run_id"])


def _refuse_repeated(path: Path, frame: pd.DataFrame, key: list[str]) -> None:
    """Each row must say what it is about, and no two the same."""
    unnamed = int(frame[key].isna().any(axis=1).sum())
    if unnamed:
        raise OsoError(f"{path}: {unnamed} rows without {' or '.join(key)}")
    repeated = frame.duplicated(key)
    if repeated.any():
        run = frame.loc[repeated, "run_id"].iloc[0]
        raise OsoError(
            f"{path}: run {run} stands there more than once "
            f"({int(repeated.sum())} rows repeat another's {', '.join(key)})"
        )


def read_table(path: Path, kind: str) -> pd.DataFrame:
    """One table from one Parquet file or a folder of parts of that name."""
    frames = [*read_files(path, kind).values()]
    if not frames:
        raise OsoError(f"{path}: no such results; the study or `oso collect` writes them")
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def read_files(path: Path, kind: str) -> dict[str, pd.DataFrame]:
    """A table's rows by the name of the file that holds them; empty where there is none."""
    return {file.name: _read_file(file, kind) for file in _files(path)}


def run_ids(folder: Path) -> set[str]:
    """Identities of the runs that a folder holds whole; quicker than reading all of it.

    A finished run without evaluations is none of them.
    """

    def read() -> set[str]:
        runs = _columns(folder, "runs", ["run_id", "status"])
        evaluated = set(_columns(folder, "evaluations", ["run_id"])["run_id"].unique())
        return set(runs["run_id"]) - (_finished(runs) - evaluated)

    return _while_still(folder, read)


def _columns(folder: Path, kind: str, columns: Sequence[str]) -> pd.DataFrame:
    frames = [read_columns(path, kind, columns)[0] for path in _files(folder / f"{kind}.parquet")]
    return pd.concat([pd.DataFrame(columns=columns), *frames], ignore_index=True)


def is_store(folder: Path) -> bool:
    """Whether there are results here, be it of a change that is not yet in its place."""
    return (folder / "runs.parquet").exists() or (folder / PENDING).exists()


def _while_still(folder: Path, read: Callable[[], T]) -> T:
    """What `read` returns or raises where no file of the tables changed meanwhile."""
    for _ in range(_TRIES):
        before = _state(folder)
        try:
            outcome = read()
        except OsoError:
            if _state(folder) == before:
                raise
        else:
            if _state(folder) == before:
                return outcome
        time.sleep(_A_MOMENT)
    raise OsoError(f"{folder}: changes all the time; read it once nobody writes to it")


def _state(folder: Path) -> set[tuple[Path, int, int, int]]:
    """Which files there are, and which versions of them."""
    state = set()
    for place in (folder, folder / PENDING):
        for kind in SCHEMAS:
            table = place / f"{kind}.parquet"
            for path in (table, *table.glob("*.parquet")):
                try:
                    known = path.stat()
                except OSError:  # not there, or not any more
                    continue
                if not path.is_dir():
                    state.add((path, known.st_ino, known.st_size, known.st_mtime_ns))
    return state


def _files(path: Path) -> list[Path]:
    """Of a table. A change that is decided counts, wherever its files are by now."""
    files = {file.name: file for file in path.glob("*.parquet")}
    if path.is_file():
        files = {path.name: path}
    changed = {file.name: file for file in (path.parent / PENDING / path.name).glob("*.parquet")}
    if changed and path.is_file():  # its rows are among the changed ones, in files of their own
        files = {}
    files |= changed
    return [files[name] for name in sorted(files)]


def _read_file(path: Path, kind: str) -> pd.DataFrame:
    frame, version = read_columns(path, kind, None)
    for column in _NAMES & set(frame.columns):
        for name in frame[column].dropna().unique():
            check_name(name, f"{path}: {column}")
    if kind == "evaluations" or version == SCHEMA_VERSION:
        return frame
    from oso_dp.results.older import fill_runs  # it needs what checks a configuration

    return fill_runs(frame, version)


def read_columns(path: Path, kind: str, columns: Sequence[str] | None) -> tuple[pd.DataFrame, str]:
    """These columns, or all of the file's version, and that version."""
    try:
        schema = pq.read_schema(path)
        version = (schema.metadata or {}).get(b"oso_schema_version", b"none").decode()
        if version not in VERSIONS:
            raise OsoError(
                f"{path}: schema version {version}; this package reads {' and '.join(VERSIONS)}"
            )
        expected = schema_of(kind, version)
        if not schema.equals(expected, check_metadata=False):
            wrong = [n for n in expected.names if n not in schema.names] or schema.names
            raise OsoError(f"{path}: not the schema of `{kind}` (see columns: {', '.join(wrong)})")
        return pq.read_table(path, columns=columns).to_pandas(), version
    except (pa.ArrowException, OSError) as error:
        raise OsoError(f"{path}: not a readable Parquet file; is it cut off?") from error
