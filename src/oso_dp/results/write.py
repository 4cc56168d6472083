"""Writing one table of results, whole or not at all."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.files import atomic_write
from oso_dp.results.schema import SCHEMAS


def write_table(path: Path, kind: str, rows: pd.DataFrame | list[dict[str, Any]]) -> None:
    """Write rows of `kind` (runs or evaluations) to one Parquet file, atomically.

    Raises OsoError naming the path if it cannot be written; an existing file then stays as it was.
    """
    schema = SCHEMAS[kind]
    frame = pd.DataFrame(rows, columns=schema.names)
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    table = table.replace_schema_metadata(schema.metadata)
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd")
