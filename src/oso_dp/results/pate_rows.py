"""The table of PATE's students (pate.parquet): one row for each student and way of learning.

Beside the options that decide a row, it has the costs of its labels four ways, and the accuracy of
teachers, labels and student.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, check_regular, format_os_error, make_folder
from oso_dp.locks import only_writer

FILE = "pate.parquet"  # in a results folder
_SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("data", pa.string()),  # digest of the arrays
        ("model", pa.string()),  # of teachers and student
        ("teachers", pa.int64()),
        ("epochs", pa.int64()),  # of the teachers, as the next three
        ("batch_size", pa.int64()),
        ("learning_rate", pa.float64()),
        ("shift", pa.int64()),
        ("aggregator", pa.string()),
        ("options", pa.string()),  # name=value, separated by a comma and a space
        ("plan", pa.string()),  # the same, with the calibrated noise
        ("queries", pa.int64()),  # planned, as are answers
        ("answers", pa.int64()),
        ("epsilon", pa.float64()),  # budget of the plan
        ("delta", pa.float64()),
        ("seed", pa.int64()),
        ("learning", pa.string()),  # supervised or pseudo_labels
        ("student", pa.string()),  # options of its training, as `options`
        ("epsilon_rdp", pa.float64()),  # of the plan; independent of the votes, as the next
        ("epsilon_exact", pa.float64()),
        ("epsilon_data_dependent", pa.float64()),  # of what was released
        ("epsilon_sanitized", pa.float64()),  # its expectation, with its release
        ("sanitized_deviation", pa.float64()),
        ("answered", pa.int64()),
        ("label_accuracy", pa.float64()),  # of the answers
        ("teacher_accuracy", pa.float64()),  # mean, on the pool
        ("ensemble_accuracy", pa.float64()),  # of the votes without noise, on the pool
        ("student_accuracy", pa.float64()),  # NaN where no query was answered
        ("test_examples", pa.int64()),
        ("seconds", pa.float64()),  # of the student
        ("device", pa.string()),
        ("commit", pa.string()),
        ("torch_version", pa.string()),
        ("ledger", pa.string()),  # JSON: what was released
        ("planned_ledger", pa.string()),  # JSON: what epsilon counts
    ],
    metadata={"oso_pate_version": "1"},
)
COLUMNS = _SCHEMA.names
# What decides the labels; and the student.
LABELLING = [*COLUMNS[: COLUMNS.index("plan")], "epsilon", "delta", "seed"]
KEY = [*LABELLING, "learning", "student"]


def write_rows(path: Path, rows: Iterable[dict[str, Any]] | pd.DataFrame) -> None:
    """Write rows atomically."""
    frame = pd.DataFrame(rows if isinstance(rows, pd.DataFrame) else [*rows], columns=COLUMNS)
    frame["plan"] = [_text(plan) for plan in frame["plan"]]
    table = pa.Table.from_pandas(frame, schema=_SCHEMA, preserve_index=False)
    with atomic_write(path) as file:
        pq.write_table(table.replace_schema_metadata(_SCHEMA.metadata), file, compression="zstd")


def _text(plan: Any) -> str:
    if isinstance(plan, str):
        return plan
    return ", ".join(f"{name}={value!r}" for name, value in sorted(plan.items()))


def read_rows(path: Path) -> pd.DataFrame:
    """The rows; empty where there is no file. OsoError for another file."""
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    check_regular(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        problem = format_os_error(error)
        raise OsoError(f"{path}: not a table of PATE's students ({problem})") from None
    version = (table.schema.metadata or {}).get(b"oso_pate_version")
    if version != b"1" or not table.schema.equals(_SCHEMA):
        raise OsoError(f"{path}: not a table of PATE's students of version 1")
    return table.to_pandas()


def is_table(path: Path) -> bool:
    """Whether a file is such a table."""
    try:
        read_rows(path)
    except OsoError:
        return False
    return True


def collect_rows(parts: Sequence[Path], results: Path) -> int:
    """Add the rows of parts to the results folder; a row with the same key is replaced.

    Returns the number of rows that are stored then.
    """
    make_folder(results)
    with only_writer(results):
        found = [read_rows(path) for path in (results / FILE, *parts)]
        rows = pd.concat([frame for frame in found if len(frame)] or found[:1])
        rows = rows.drop_duplicates(KEY, keep="last").sort_values(KEY, ignore_index=True)
        write_rows(results / FILE, rows)
    return len(rows)
