"""What a deletion would lose: runs on private data, if it has the only record."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.stores import options

from oso_dp.checkpoint import FINISHED_RUNS, save_checkpoint
from oso_dp.errors import OsoError
from oso_dp.results.collect import collect
from oso_dp.results.unsaved import check_no_unsaved_runs
from oso_dp.results.write import write_table
from oso_dp.study.identity import make_run_id

from .conftest import evaluation_row, run_row


def part(folder: Path, seed: int = 0, public: bool = False, value: float = 0.5) -> Path:
    declared = {"data_version": "1", "randomness": "system"}
    declared |= {"budget_runs": None if public else 4}
    row = run_row("one", dataset="patients", seed=seed, **options(**declared))
    row["run_id"] = make_run_id(row)
    scores = [evaluation_row(row["run_id"], value=value)]
    write_table(folder / "evaluations.parquet", "evaluations", scores)
    write_table(folder / "runs.parquet", "runs", [row])
    return folder


PLACES = [
    "study/results",
    "study/parts/patients.online.k2.eps8/shard0",
    "study/parts/patients.online.k2.eps8/shard11",
    "campaign/parts/patients.online.k2.eps8.0123456789ab",
    "campaign/parts-of/kept/.patients.online.k2.eps8.0123456789ab",
    "a/b/c/d/results",
]


@pytest.mark.parametrize("place", PLACES)
def test_unsaved_private_runs_raise(place, tmp_path) -> None:
    build = tmp_path / "build"
    part(build / place)
    with pytest.raises(OsoError, match=f"^{build / place}: is the only known record of 1 runs"):
        check_no_unsaved_runs(build)
    check_no_unsaved_runs(build, [part(tmp_path / "kept")])
    with pytest.raises(OsoError, match="is the only known record"):
        check_no_unsaved_runs(build, [part(build / "z/kept")])  # goes with it


@pytest.mark.parametrize("place", PLACES)
def test_unsaved_public_runs_pass(place, tmp_path) -> None:
    part(tmp_path / "build" / place, public=True)
    check_no_unsaved_runs(tmp_path / "build")


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("place", ["study/parts/x/shard0/progress", "campaign/parts/.progress/x"])
def test_unsaved_killed_job_checked(place, public: bool, tmp_path) -> None:
    """A killed job may be the only record of the runs that it has finished."""
    made = part(tmp_path / "elsewhere", public=public)
    rows = {
        kind: pq.read_table(made / f"{kind}.parquet").to_pylist()
        for kind in ("runs", "evaluations")
    }
    path = tmp_path / "build" / place / FINISHED_RUNS
    save_checkpoint(path, "this job", rows)
    if not public:
        with pytest.raises(
            OsoError, match=f"^{path.parent}: is the only known .* finish its study"
        ):
            check_no_unsaved_runs(tmp_path / "build")
    check_no_unsaved_runs(tmp_path / "build", [made])
    path.write_bytes(b"damaged")
    with pytest.raises(OsoError, match="it may be the only record of runs"):
        check_no_unsaved_runs(tmp_path / "build", [made])


def test_unsaved_checkouts_of_commits_ignored(tmp_path) -> None:
    part(tmp_path / "build/campaign/checkouts/0123/results")
    check_no_unsaved_runs(tmp_path / "build")
    part(tmp_path / "build/checkouts/0123/results")
    with pytest.raises(OsoError, match=r"0123/results: is the only known record"):
        check_no_unsaved_runs(tmp_path / "build")


def collected(build: Path, store: Path, *parts: Path) -> None:
    collect(parts, store)
    (build / "study").mkdir(parents=True, exist_ok=True)
    (build / "study/collected.txt").write_text(f"{store}: 1 runs, 1 evaluations\n")


def test_unsaved_collected_parts_pass(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = part(Path("build/study/parts/x/shard0"))
    collected(Path("build"), Path("private/results"), made)
    check_no_unsaved_runs(Path("build"))
    part(Path("build/study/parts/x/shard1"), 1)
    with pytest.raises(OsoError, match="shard1: is the only known record of 1 runs"):
        check_no_unsaved_runs(Path("build"))


def test_unsaved_second_training_raises(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    collected(Path("build"), Path("kept"), part(Path("build/study/parts/x/shard0")))
    part(Path("build/other/parts/x/shard0"), value=0.6)
    with pytest.raises(OsoError, match=r"^build/other/parts/x/shard0: is the only known record"):
        check_no_unsaved_runs(Path("build"))


@pytest.mark.parametrize("stage", [".pending", ".staging"])
def test_unsaved_pending_store_raises(stage, tmp_path) -> None:
    store = tmp_path / "build/study/results"
    collect([part(tmp_path / "part")], store)
    (store / stage).mkdir()
    for kind in ("runs", "evaluations"):
        shutil.move(store / f"{kind}.parquet", store / stage)
    with pytest.raises(OsoError, match=f"^{store / stage}: is the only known record"):
        check_no_unsaved_runs(tmp_path / "build")


def test_unsaved_linked_store_raises(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = part(Path("elsewhere"))
    Path("build/study").mkdir(parents=True)
    Path("build/study/results").symlink_to(made.resolve())
    collected(Path("build"), Path("build/study/results"))
    with pytest.raises(OsoError, match=r"^build/study/results: is the only known record"):
        check_no_unsaved_runs(Path("build"))


@pytest.mark.parametrize("spoil", ["cut off", "invalid", "a folder", "closed"])
def test_unsaved_unreadable_runs_raise(spoil, tmp_path) -> None:
    place = part(tmp_path / "build/study/results", public=True)
    table = place / "runs.parquet"
    if spoil == "invalid":
        row = run_row("a", dataset="patients", budget_runs=0)
        write_table(table, "runs", [row])
    elif spoil == "cut off":
        table.write_bytes(table.read_bytes()[:-20])
    elif spoil == "closed":
        table.unlink()
        table.symlink_to(tmp_path / "gone")
    else:
        table.unlink()
        (table / "x.parquet").mkdir(parents=True)
        (table / "x.parquet/y.parquet").write_text("no rows")
    with pytest.raises(OsoError, match=r"cannot be read .* nothing was deleted"):
        check_no_unsaved_runs(tmp_path / "build")


@pytest.fixture
def checkout(repo, tmp_path) -> Path:
    """The script, in a folder of its own without an environment."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(repo / "scripts/clean.sh", tmp_path / "scripts")
    return tmp_path


def clean(checkout: Path, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [checkout / "scripts/clean.sh"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def test_clean_private_store_is_kept(checkout, repo) -> None:
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{repo}/src' exec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    made = part(checkout / "build/study/results")
    status, said = clean(checkout)
    assert (status, len(said.splitlines())) == (2, 1)
    assert said.startswith("oso: error: build/study/results: is the only known record")
    assert f"oso collect {Path('build/study/results')} --store FOLDER, then make clean" in said
    shutil.copytree(made, checkout / "kept")
    assert clean(checkout, STORE="kept") == (0, "")
    assert not (checkout / "build").exists()
    assert (checkout / "kept/runs.parquet").exists()


def test_clean_without_environment_keeps_results(checkout) -> None:
    (checkout / "build/data").mkdir(parents=True)
    assert clean(checkout) == (0, "")
    assert not (checkout / "build").exists()
    assert clean(checkout) == (0, "")
    made = part(checkout / "build/deep/er/results", public=True)
    status, said = clean(checkout)
    assert (status, len(said.splitlines())) == (2, 1)
    assert "make setup, then make clean; nothing was deleted" in said
    assert (made / "runs.parquet").exists()


def test_unsaved_store_reported_before_parts(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = part(Path("build/a/parts/x/shard0"))
    collected(Path("build"), Path("build/z/results"), made)
    with pytest.raises(OsoError, match=r"^build/z/results: is .*; move it out of this folder"):
        check_no_unsaved_runs(Path("build"))
    Path("build/z/results").rename("kept")
    with pytest.raises(OsoError, match=r"^build/a/parts/x/shard0: .* oso collect build/a/parts"):
        check_no_unsaved_runs(Path("build"))
    check_no_unsaved_runs(Path("build"), [Path("kept")])
