"""Writing results: parts, each written whole or not at all, and their union, the store."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from oso.errors import OsoError
from oso.files import atomic_write
from oso.results.read import Results, read_results, read_table
from oso.results.schema import KEYS, SCHEMAS


def write_table(path: Path, kind: str, rows: pd.DataFrame | list[dict[str, object]]) -> None:
    """Write rows of `kind` (runs or evaluations) to one Parquet file, atomically.

    Raises OsoError naming the path if it cannot be written; an existing file then stays as it was.
    """
    schema = SCHEMAS[kind]
    frame = pd.DataFrame(rows, columns=schema.names)
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    table = table.replace_schema_metadata(schema.metadata)
    with atomic_write(path) as file:
        pq.write_table(table, file, compression="zstd")


def collect(parts: Iterable[Path], store: Path, expected: Iterable[str] = ()) -> Results:
    """Add the parts (folders with runs.parquet and evaluations.parquet) to the store.

    A run that the store or another part already holds is counted once. If two differ in what they
    measured, or a run of `expected` (by run_id) is in none of them, OsoError names the run and
    nothing is written.
    """
    results = [read_results(store)] if any(store.glob("*.parquet")) else []
    results += [read_results(part) for part in parts]
    if not results:
        raise OsoError(f"{store}: no results and no parts to collect")
    runs = pd.concat([result.runs for result in results], ignore_index=True)
    _refuse_contradictions(store, runs)
    runs = runs.drop_duplicates("run_id", keep="first")
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
    runs = runs.sort_values(
        ["dataset", "method", "k", "epsilon", "learning_rate", "threshold", "quantile", "seed"]
    )
    evaluations = evaluations.sort_values(KEYS["evaluations"])
    # Evaluations first: a store cut off between the two then holds no run without evaluations.
    write_table(store / "evaluations.parquet", "evaluations", evaluations)
    write_table(store / "runs.parquet", "runs", runs)
    return Results(runs.reset_index(drop=True), evaluations.reset_index(drop=True))


def _refuse_contradictions(store: Path, runs: pd.DataFrame) -> None:
    """What a run was and how it ended must be the same wherever it stands."""
    where_it_ran = ["device", "torch_version", "package_version", "code_hash", "wall_seconds"]
    different = runs.drop(columns=where_it_ran).drop_duplicates()
    repeated = different.duplicated("run_id")
    if repeated.any():
        raise _contradiction(store, different.loc[repeated, "run_id"].iloc[0])


def _contradiction(store: Path, run: str) -> OsoError:
    return OsoError(
        f"{store}: run {run} was measured twice with different outcomes; move the rows of one "
        "of them away first"
    )


def finished_runs(store: Path) -> set[str]:
    """Identities of the runs that the store already holds."""
    path = store / "runs.parquet"
    return set(read_table(path, "runs")["run_id"]) if path.exists() else set()
