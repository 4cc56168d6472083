"""Reading results, with their schema and their completeness checked."""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.files import FileVersion, check_name, check_regular, file_version, format_os_error
from oso_dp.results import checks
from oso_dp.results.schema import (
    EVALUATIONS,
    KEYS,
    REPEATED,
    RUNS,
    SCHEMAS,
    VERSIONS,
    schema_of,
)

# In a store: a change that is decided, perhaps not yet in its place (see oso_dp.results.collect).
PENDING = ".pending"
_TRIES = 100  # of reading while others write
_RETRY_DELAY = 0.05  # seconds

# In one file. The paper's whole study has some million; in a few bytes there may be billions.
MAX_ROWS = 20_000_000

# A file of a store, by its cohort's name and identity (see oso_dp.results.collect).
_COHORT_FILE = re.compile(r"\.[0-9a-f]{12}\.parquet$")

# Files are called after these.
_NAMES = {"dataset", "method", "search_accounting", "metric", "split"}

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """The two tables; columns as in oso_dp.results.schema."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame


def read_results(folder: Path) -> Results:
    """Read a folder consistently, also while another process changes it.

    OsoError for a missing or truncated file, another schema, or an invalid row (`checks`).
    """

    def read() -> Results:
        runs = read_table(folder / "runs.parquet", "runs")
        evaluations = _table(folder / "evaluations.parquet", "evaluations")
        _check_clear(folder, runs, evaluations)
        return Results(runs, _frame(evaluations, "evaluations"))

    return _read_stable(folder, read)


def check_clear(folder: Path, results: Results) -> None:
    """OsoError for rows that `read_results` would refuse, except for single columns.

    `folder` is the one that the results are read from or will be written to.
    """
    schema = pa.schema([EVALUATIONS.field(name) for name in KEYS["evaluations"]])
    evaluations = pa.Table.from_pandas(results.evaluations, schema, preserve_index=False)
    _check_clear(folder, results.runs, evaluations)


def _check_clear(folder: Path, runs: pd.DataFrame, evaluations: pa.Table) -> None:
    _raise_error(folder / "runs.parquet", checks.find_identity_error(runs))
    _raise_error(folder / "runs.parquet", checks.find_runs_error(runs))
    _raise_error(folder / "evaluations.parquet", checks.find_evaluations_error(runs, evaluations))


def _raise_error(path: Path, message: str | None) -> None:
    if message is not None:
        raise OsoError(f"{path}: {message}")


def read_table(path: Path, kind: str) -> pd.DataFrame:
    """One table from a Parquet file or a folder of such files."""
    return _frame(_table(path, kind), kind)


def read_files(path: Path, kind: str) -> dict[str, pd.DataFrame]:
    """The rows of a table by file name; empty if there is no file."""
    frames = {}
    for file in _files(path):
        table = _read_file(file, kind)
        _check(file, table, kind)
        frames[file.name] = _frame(table, kind)
    return frames


def _table(path: Path, kind: str) -> pa.Table:
    """The files' rows in order; repeated texts as dictionaries.

    OsoError for a value that breaks its column's rule, and where there is no file.
    """
    read = [(file, _read_file(file, kind)) for file in _files(path)]
    if not read:
        raise OsoError(f"{path}: no such results; the study or `oso collect` writes them")
    whole = pa.concat_tables(table for _, table in read).unify_dictionaries()
    try:
        _check(path, whole, kind)  # of all files at once, which is quicker
    except OsoError:
        for file, table in read:
            _check(file, table, kind)
        raise
    return whole


def _check(path: Path, table: pa.Table, kind: str) -> None:
    for column in sorted(_NAMES & {*table.column_names}):
        for name in pc.unique(table[column]).drop_null().to_pylist():
            check_name(name, f"{path}: {column}")
    _raise_error(path, checks.find_column_error(table, kind))


def _frame(table: pa.Table, kind: str) -> pd.DataFrame:
    """Lists come as tuples, which are compared and counted like other values."""
    frame = table.cast(SCHEMAS[kind]).to_pandas()
    if kind == "evaluations":
        lists = frame["class_accuracy"]
        frame["class_accuracy"] = lists.map(_as_tuple, na_action="ignore").astype(object)
    return frame


def _as_tuple(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(value) else value for value in values.tolist())


def run_ids(folder: Path) -> set[str]:
    """Identities of the runs that are complete; none without a store. Reads few columns.

    A finished run without evaluations is not complete.
    """

    def read() -> set[str]:
        runs = _columns(folder, "runs", ["run_id", "status"])
        seen = set(_columns(folder, "evaluations", ["run_id"])["run_id"].unique())
        finished = set(runs.loc[runs["status"] == "finished", "run_id"])
        return set(runs["run_id"]) - (finished - seen)  # a diverged run may have none

    return _read_stable(folder, read)


def read_runs_of(folder: Path, cohort: str) -> pd.DataFrame:
    """Runs in the files of cohorts of this name, and in files that `collect` did not name."""

    def read() -> pd.DataFrame:
        table = folder / "runs.parquet"
        files = [
            file
            for file in _files(table)
            if file.name.startswith(f"{cohort}.") or not _COHORT_FILE.search(file.name)
        ]
        frames = [read_table(file, "runs") for file in files]
        return pd.concat(frames or [RUNS.empty_table().to_pandas()], ignore_index=True)

    return _read_stable(folder, read)


def _columns(folder: Path, kind: str, columns: Sequence[str]) -> pd.DataFrame:
    frames = [read_columns(path, kind, columns) for path in _files(folder / f"{kind}.parquet")]
    return pd.concat([pd.DataFrame(columns=columns), *frames], ignore_index=True)


def is_store(folder: Path) -> bool:
    """Whether the folder has results, including a committed change that is not yet in its place."""
    return (folder / "runs.parquet").exists() or (folder / PENDING).exists()


def _read_stable(folder: Path, read: Callable[[], T]) -> T:
    """The result of `read`, repeated until no file of the tables changed meanwhile."""
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
        time.sleep(_RETRY_DELAY)
    raise OsoError(f"{folder}: keeps changing; read it when no process writes to it")


def _state(folder: Path) -> set[FileVersion | None]:
    """The versions of the tables' files."""
    tables = [place / f"{kind}.parquet" for place in (folder, folder / PENDING) for kind in SCHEMAS]
    files = [path for table in tables for path in (table, *_parts(table)) if not path.is_dir()]
    return {file_version(path) for path in files}


def _files(path: Path) -> list[Path]:
    """The files of a table, including a committed change that is not yet in its place."""
    files = {file.name: file for file in _parts(path)}
    if path.is_file():
        files = {path.name: path}
    changed = {file.name: file for file in _parts(path.parent / PENDING / path.name)}
    if changed and path.is_file():  # its rows are in the changed files
        files = {}
    files |= changed
    return [files[name] for name in sorted(files)]


def _parts(folder: Path) -> list[Path]:
    """The folder's Parquet files; none if it is missing or just removed."""
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(".parquet")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_columns(path: Path, kind: str, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of one file; OsoError for a value that breaks its column's rule."""
    table = _read_file(path, kind, columns)
    _check(path, table, kind)
    return table.to_pandas()


def _read_file(path: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """These columns of a file, or all; those that its version lacks are null."""
    check_regular(path)
    try:
        head = pq.read_metadata(path)
        schema = head.schema.to_arrow_schema()
        version = (schema.metadata or {}).get(b"oso_schema_version", b"none").decode()
        if version not in VERSIONS[kind]:
            allowed = ", ".join(VERSIONS[kind])
            raise OsoError(f"{path}: schema version {version}; must be one of {allowed}")
        expected = schema_of(kind, version)
        if not schema.equals(expected, check_metadata=False):
            raise OsoError(f"{path}: not the schema of `{kind}`: {_difference(schema, expected)}")
        if head.num_rows > MAX_ROWS:
            raise OsoError(f"{path}: {head.num_rows} rows; must be <= {MAX_ROWS}")
        repeated = REPEATED[kind] if columns is None else None
        wanted = SCHEMAS[kind].names if columns is None else list(columns)
        stored = [name for name in wanted if name in expected.names]
        table = pq.read_table(path, columns=stored, read_dictionary=repeated)
        table.validate(full=True)  # malformed text would crash the process later
        for name in wanted:
            if name not in stored:
                field = SCHEMAS[kind].field(name)
                table = table.append_column(field, pa.nulls(len(table), field.type))
        return table.select(wanted).replace_schema_metadata(None)
    except OsoError:
        raise
    except Exception as error:  # a damaged file raises many types
        if isinstance(error, OSError) and error.errno:  # of the system, not of the content
            raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from error
        raise OsoError(f"{path}: not a readable Parquet file; is it cut off?") from error


def _difference(schema: pa.Schema, expected: pa.Schema) -> str:
    """The first difference in names, types or order."""
    for name in expected.names:
        if name not in schema.names:
            return f"column {name} is missing"
        if schema.field(name).type != expected.field(name).type:
            return f"column {name} is {schema.field(name).type}, not {expected.field(name).type}"
    for name in schema.names:
        if name not in expected.names:
            return f"unknown column {name}"
    return "its columns have another order or nullability"
