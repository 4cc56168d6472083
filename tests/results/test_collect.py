"""The store: nothing lost, nothing counted twice, nothing wrong accepted."""

import pandas as pd
import pyarrow.parquet as pq
import pytest

from oso_dp.errors import OsoError
from oso_dp.results.collect import collect
from oso_dp.results.read import read_results, run_ids
from oso_dp.results.schema import SCHEMA_VERSION, SCHEMAS, schema_of
from oso_dp.results.write import write_table

from .conftest import STEPS, evaluation_row, part, run_row


def names(results) -> list[str]:
    return sorted(results.runs["run_id"])


COLUMNS = {
    "runs": """
        run_id dataset method k epsilon delta search_accounting seed learning_rate threshold
        quantile momentum noise_multiplier query_noise_multiplier sampling examples batch_size
        epochs steps precision model method_options grid_runs evaluate_every final_activation
        loss oov_words vocabulary randomness stopping_distribution schedule averaging stage
        trial_fractions data_version budget_runs unit local rng_version status diverged_at device
        commit torch_version package_version code_hash wall_seconds ledger
    """,
    "evaluations": """
        run_id step split metric value loss threshold learning_rate fraction_clipped
        class_accuracy
    """,
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_schemas_columns_match_format(kind) -> None:
    assert SCHEMAS[kind].names == COLUMNS[kind].split()


def test_collect_repeated_parts_stored_once(write, tmp_path) -> None:
    store = tmp_path / "store"
    collect([write("a", "r1"), write("b", "r2", "r3")], store)
    collect([write("a", "r1"), write("c", "r4"), write("c", "r4")], store)
    results = read_results(store)
    assert names(results) == ["r1", "r2", "r3", "r4"]
    assert len(results.evaluations) == 8
    assert run_ids(store) == {"r1", "r2", "r3", "r4"}


def test_collect_conflicting_outcomes_raise(write, tmp_path) -> None:
    store = tmp_path / "store"
    collect([write("a", "r1")], store)
    before = {path: path.read_bytes() for path in store.rglob("*.*.*.parquet")}
    with pytest.raises(OsoError, match="run r1 was measured twice"):
        collect([write("b", "r1", "r2", value=0.5)], store)
    assert {path: path.read_bytes() for path in store.rglob("*.*.*.parquet")} == before


def test_collect_missing_planned_run_raises(write, tmp_path) -> None:
    with pytest.raises(OsoError, match=r"1 planned run is neither there .* first is r9"):
        collect([write("a", "r1")], tmp_path / "store", expected=["r1", "r9"])
    assert not list((tmp_path / "store").glob("*.parquet"))


@pytest.mark.parametrize(
    ("kind", "version", "oldest"), [("runs", "99", 5), ("runs", "4", 5), ("evaluations", "0", 1)]
)
def test_read_results_unknown_version_raises(kind, version, oldest, write) -> None:
    folder = write("a", "r1")
    path = folder / f"{kind}.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"oso_schema_version": version}), path)
    said = rf"{kind}\.parquet: schema version {version}; must be one of {oldest}, "
    with pytest.raises(OsoError, match=said):
        read_results(folder)


def test_read_results_missing_column_raises(write) -> None:
    folder = write("a", "r1")
    path = folder / "runs.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["ledger"]), path)
    with pytest.raises(OsoError, match="ledger"):
        read_results(folder)


def test_read_results_duplicate_run_raises(write) -> None:
    folder = write("a", "r1")
    runs = pd.concat([pq.read_table(folder / "runs.parquet").to_pandas()] * 2)
    write_table(folder / "runs.parquet", "runs", runs)
    with pytest.raises(OsoError, match="run r1 appears more than once"):
        read_results(folder)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_read_results_missing_part_raises(write, tmp_path, kind) -> None:
    for name in ("a", "b"):
        for each in SCHEMAS:
            part = tmp_path / "store" / f"{each}.parquet" / f"{name}.parquet"
            part.parent.mkdir(parents=True, exist_ok=True)
            (write(name, f"r-{name}") / f"{each}.parquet").rename(part)
    (tmp_path / "store" / f"{kind}.parquet" / "b.parquet").unlink()
    with pytest.raises(OsoError, match=r"run r-b .*no row in") as error:
        read_results(tmp_path / "store")
    assert "\n" not in str(error.value)


def test_write_table_failure_keeps_old_table(write, monkeypatch) -> None:
    folder = write("a", "r1")
    before = (folder / "runs.parquet").read_bytes()

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(OsoError, match="No space left"):
        write_table(folder / "runs.parquet", "runs", [])
    assert (folder / "runs.parquet").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["evaluations.parquet", "runs.parquet"]


def test_collect_conflicting_divergence_raises(write, tmp_path) -> None:
    for name, step in (("a", 3), ("b", 9)):
        folder = write(name, "r1")
        row = run_row("r1", status="diverged", diverged_at=step)
        write_table(folder / "evaluations.parquet", "evaluations", [])
        write_table(folder / "runs.parquet", "runs", [row])
    with pytest.raises(OsoError, match="run r1 was measured twice"):
        collect([tmp_path / "a", tmp_path / "b"], tmp_path / "store")


# A run of one identity: what may not differ where it was trained twice, and another value of it.
FIXED = {
    "k": 7,
    "epsilon": 8.0,
    "delta": 1e-6,
    "search_accounting": "single",
    "seed": 1,
    "learning_rate": 2.0,
    "threshold": 0.2,
    "quantile": 0.5,
    "momentum": 0.5,
    "noise_multiplier": 0.9,
    "query_noise_multiplier": 6.0,
    "batch_size": 500,
    "precision": "bfloat16",
    "rng_version": 2,
}


@pytest.mark.parametrize("column", FIXED)
def test_collect_differing_run_columns_raise(column: str, tmp_path) -> None:
    steps = 1200 if column == "batch_size" else STEPS
    row = run_row("r1", **{column: FIXED[column], "steps": steps})
    part(tmp_path / "a", "r1")
    write_table(tmp_path / "b/runs.parquet", "runs", [row])
    write_table(tmp_path / "b/evaluations.parquet", "evaluations", [evaluation_row("r1", steps)])
    with pytest.raises(OsoError, match="run r1 was measured twice"):
        collect([tmp_path / "a", tmp_path / "b"], tmp_path / "store")


MEASURED = {"loss": 0.31, "threshold": 0.2, "learning_rate": 0.9, "fraction_clipped": 0.5}


@pytest.mark.parametrize("column", MEASURED)
def test_collect_differing_evaluation_columns_raise(column: str, tmp_path) -> None:
    for name, change in (("a", {}), ("b", {column: MEASURED[column]})):
        part(tmp_path / name, "r1")
        write_table(
            tmp_path / name / "evaluations.parquet",
            "evaluations",
            [evaluation_row("r1", 50), evaluation_row("r1") | change],
        )
    collect([tmp_path / "a"], tmp_path / "store")
    with pytest.raises(OsoError, match="run r1 was measured twice"):
        collect([tmp_path / "b"], tmp_path / "store")


def test_collect_keeps_first_provenance(tmp_path) -> None:
    store, where = tmp_path / "store", ["device", "code_hash", "wall_seconds"]
    first = dict(zip(where, ["first", "a", 5.0], strict=True))
    later = dict(zip(where, ["later", "b", 9.0], strict=True))
    collect([part(tmp_path / "a", "r1", **first)], store)
    more = part(tmp_path / "c", "r2", seed=1, **later)  # the same cohort's file is written anew
    collect([part(tmp_path / "b", "r1", **later), more], store)
    runs = read_results(store).runs.set_index("run_id")[where]
    assert runs.loc["r1"].to_dict() == first
    assert runs.loc["r2"].to_dict() == later


CLASSES = (0.9, None, 0.7)


def write_classes(folder, classes, version: str = SCHEMA_VERSION):
    """One run, as a checkout of this schema version writes its evaluations."""
    rows = [evaluation_row("r1") | {"class_accuracy": classes}]
    write_table(folder / "evaluations.parquet", "evaluations", rows)
    write_table(folder / "runs.parquet", "runs", [run_row("r1")])
    path = folder / "evaluations.parquet"
    table = pq.read_table(path).select(schema_of("evaluations", version).names)
    pq.write_table(table.replace_schema_metadata({"oso_schema_version": version}), path)
    return folder


@pytest.mark.parametrize("older_first", [True, False])
def test_collect_class_accuracy_completes_old_row(older_first, tmp_path) -> None:
    older = write_classes(tmp_path / "older", None, version="2")
    newer = write_classes(tmp_path / "newer", CLASSES)
    store = tmp_path / "store"
    for folder in (older, newer) if older_first else (newer, older):
        collect([folder], store)
        (row,) = read_results(folder).evaluations["class_accuracy"]
        assert row == (CLASSES if folder == newer else None)
    assert [*read_results(store).evaluations["class_accuracy"]] == [CLASSES]


def test_collect_conflicting_class_accuracy_raises(tmp_path) -> None:
    parts = [
        write_classes(tmp_path / "a", CLASSES),
        write_classes(tmp_path / "b", (0.9, None, 0.6)),
    ]
    with pytest.raises(OsoError, match="measured twice with different outcomes"):
        collect(parts, tmp_path / "store")
