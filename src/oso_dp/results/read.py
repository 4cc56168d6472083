"""Reading results, with their schema and their completeness checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.results.schema import KEYS, SCHEMA_VERSION, VERSIONS, schema_of

# In a store: a change that is decided, perhaps not yet in its place (see oso_dp.results.collect).
PENDING = ".pending"


@dataclass(frozen=True)
class Results:
    """The two tables; columns as in oso_dp.results.schema."""

    runs: pd.DataFrame
    evaluations: pd.DataFrame


def read_results(folder: Path) -> Results:
    """Read a folder, all of it or nothing.

    OsoError names a file that is missing, cut off or of another schema; a run that stands there
    twice, has no identity, or lacks its row or its evaluations, as where a part is missing.
    """
    runs = read_table(folder / "runs.parquet", "runs")
    evaluations = read_table(folder / "evaluations.parquet", "evaluations")
    for kind, frame in (("runs", runs), ("evaluations", evaluations)):
        _refuse_unclear(folder / f"{kind}.parquet", frame, KEYS[kind])
    evaluated = set(evaluations["run_id"].unique())
    unknown = evaluated - set(runs["run_id"])
    if unknown:
        raise OsoError(
            f"{folder}: evaluations of run {min(unknown)} have no row in runs.parquet; "
            "one of the two files is older or incomplete"
        )
    finished = set(runs.loc[runs["status"] == "finished", "run_id"])
    if unseen := finished - evaluated:  # one that diverged may have had none
        raise OsoError(
            f"{folder}: run {min(unseen)} is finished, but has no row in evaluations.parquet; "
            f"{len(unseen)} such runs: a part is missing, or one of the two files is older"
        )
    return Results(runs, evaluations)


def _refuse_unclear(path: Path, frame: pd.DataFrame, key: list[str]) -> None:
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
    frames = [_read_file(file, kind) for file in _files(path)]
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def run_ids(folder: Path) -> set[str]:
    """Identities of the runs in a folder of results; quicker than reading all of it."""
    identities: set[str] = set()
    for path in _files(folder / "runs.parquet"):
        identities |= set(read_columns(path, "runs", ["run_id"])[0]["run_id"])
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


def _read_file(path: Path, kind: str) -> pd.DataFrame:
    frame, version = read_columns(path, kind, None)
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
