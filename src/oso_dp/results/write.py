"""Atomic writing of result files."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write
from oso_dp.locks import only_writer
from oso_dp.results.read import PENDING, is_store, read_columns
from oso_dp.results.schema import SCHEMAS


def check_no_loss(part: Path, safe: Collection[str]) -> None:
    """OsoError if the folder is a results store, or has runs that are not in `safe`."""
    table = part / "runs.parquet"
    if table.is_dir() or (part / PENDING).exists():
        raise OsoError(f"--output {part}: is a results store; name another folder")
    if not table.exists():
        return
    if lost := {*read_columns(table, "runs", ["run_id"])["run_id"]} - {*safe}:
        raise OsoError(
            f"--output {part}: has {len(lost)} runs that this job does not resume (the first is "
            f"{min(lost)}) and would overwrite; collect them and name their --store"
        )


def write_table(path: Path, kind: str, rows: pd.DataFrame | list[dict[str, Any]]) -> None:
    """Write rows of `kind` (runs or evaluations) to one Parquet file, atomically.

    Raises OsoError naming the path if it cannot be written; an existing file then stays as it was.
    """
    schema = SCHEMAS[kind]
    frame = pd.DataFrame(rows, columns=schema.names)
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    table = table.replace_schema_metadata(schema.metadata)
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd", write_statistics=False)  # small files


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of the file's folder, if that is a results store."""
    if is_store(path.parent):
        with only_writer(path.parent):
            yield
    else:
        yield
