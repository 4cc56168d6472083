"""Reading results, with their schema and their completeness checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.results import claims, evaluated, rules
from oso_dp.results.schema import REPEATED, SCHEMA_VERSION, VERSIONS, schema_of

# In a store: a change that is decided, perhaps not yet in its place (see oso_dp.results.collect).
PENDING = ".pending"


@dataclass(frozen=True)
class Results:
    """The two tables; columns as in oso_dp.results.schema."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame


def read_results(folder: Path) -> Results:
    """Read a folder, all of it or nothing.

    OsoError names a file that is missing, cut off or of another schema; a value that no training
    writes (see `rules`, `claims`); a run that stands there twice, has no identity, or lacks its row
    or its evaluations, as where a part is missing (`evaluated`).
    """
    runs = read_table(folder / "runs.parquet", "runs")
    of_runs = folder / "evaluations.parquet"
    evaluations = pa.concat_tables(table for table, _ in _tables(of_runs, "evaluations"))
    _refuse(folder / "runs.parquet", _unclear(runs) or claims.complaint(runs))
    _refuse(of_runs, evaluated.complaint(runs, evaluations))
    return Results(runs, _frame(evaluations, "evaluations"))


def _unclear(runs: pd.DataFrame) -> str | None:
    """Each row must say what it is about, and no two the same."""
    if unnamed := int(runs["run_id"].isna().sum()):
        return f"{unnamed} rows without run_id"
    repeated = runs["run_id"].duplicated()
    if not repeated.any():
        return None
    run = runs.loc[repeated, "run_id"].iloc[0]
    return (
        f"run {run} stands there more than once "
        f"({int(repeated.sum())} rows repeat another's run_id)"
    )


def _refuse(path: Path, complaint: str | None) -> None:
    if complaint is not None:
        raise OsoError(f"{path}: {complaint}")


def read_table(path: Path, kind: str) -> pd.DataFrame:
    """One table from one Parquet file or a folder of parts of that name."""
    frames = [_frame(table, kind, version) for table, version in _tables(path, kind)]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _tables(path: Path, kind: str) -> list[tuple[pa.Table, str]]:
    """The files' rows in order, those of one version together; repeated texts as dictionaries.

    OsoError for a value that breaks its column's rule.
    """
    read = [(file, *_read_file(file, kind)) for file in _files(path)]
    tables = []
    for version, group in groupby(read, key=lambda one: one[2]):
        files = list(group)
        whole = pa.concat_tables(table for _, table, _ in files).unify_dictionaries()
        if rules.complaint(whole, kind):  # of all files at once, which is quicker
            for file, table, _ in files:
                _refuse(file, rules.complaint(table, kind))
        tables.append((whole, version))
    return tables


def _frame(table: pa.Table, kind: str, version: str = SCHEMA_VERSION) -> pd.DataFrame:
    frame = table.cast(schema_of(kind, version)).to_pandas()
    if kind == "evaluations" or version == SCHEMA_VERSION:
        return frame
    from oso_dp.results.older import fill_runs  # it needs what checks a configuration

    return fill_runs(frame, version)


def run_ids(folder: Path) -> set[str]:
    """Identities of the runs in a folder of results; quicker than reading all of it."""
    identities: set[str] = set()
    for path in _files(folder / "runs.parquet"):
        identities |= set(read_columns(path, "runs", ["run_id"])["run_id"])
    return identities


def _files(path: Path) -> list[Path]:
    """Of a table. A change that is decided counts, wherever its files are by now."""
    files = {file.name: file for file in path.glob("*.parquet")}
    if path.is_file():
        files = {path.name: path}
    changed = {file.name: file for file in (path.parent / PENDING / path.name).glob("*.parquet")}
    if changed and path.is_file():  # its rows are among the changed ones, in files of their own
        files = {}
    files |= changed
    if not files:
        raise OsoError(f"{path}: no such results; the study or `oso collect` writes them")
    return [files[name] for name in sorted(files)]


def read_columns(path: Path, kind: str, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of one file; OsoError for a value that breaks its column's rule."""
    table, _ = _read_file(path, kind, columns)
    _refuse(path, rules.complaint(table, kind))
    return table.to_pandas()


def _read_file(path: Path, kind: str, columns: Sequence[str] | None = None) -> tuple[pa.Table, str]:
    """These columns of a file, or all of its version, and that version."""
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
        repeated = REPEATED[kind] if columns is None else None
        return pq.read_table(path, columns=columns, read_dictionary=repeated), version
    except (pa.ArrowException, OSError) as error:
        raise OsoError(f"{path}: not a readable Parquet file; is it cut off?") from error
