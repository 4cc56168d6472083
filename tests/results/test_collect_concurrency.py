"""A store's change is whole or not there, whoever is killed, and whoever else writes."""

import os
import select
import shutil
import subprocess
import sys
import threading
import time

import pytest

from oso_dp.errors import OsoError
from oso_dp.locks import only_writer
from oso_dp.results import read
from oso_dp.results.collect import collect
from oso_dp.results.read import PENDING, read_results, run_ids
from oso_dp.results.schema import SCHEMAS
from oso_dp.results.write import write_table

from .conftest import COHORTS, evaluation_row, part, run_row


def content(store) -> dict[str, bytes]:
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for kind in SCHEMAS
        for path in (store / f"{kind}.parquet").glob("*.parquet")
    }


def files(store) -> dict[str, int]:
    """Numbers of the files: one that is written again, be it alike, has another."""
    return {
        f"{path.parent.name}/{path.name}": path.stat().st_ino
        for kind in SCHEMAS
        for path in (store / f"{kind}.parquet").glob("*.parquet")
    }


def test_collect_writes_file_per_cohort(parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts, store)
    names = sorted(path.name for path in (store / "runs.parquet").iterdir())
    assert len(names) == len(COHORTS)
    assert sum(name.startswith("mnist.online.k9.eps9.") for name in names) == 5
    assert sum(name.startswith("mnist.online.k9.eps9.random_stopping.") for name in names) == 1
    assert sum(name.startswith("mnist.no_dp.k9.nonprivate.") for name in names) == 1
    assert run_ids(store) == set(COHORTS)


def test_collect_new_part_keeps_other_files(parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts, store)
    before = files(store)
    collect([part(tmp_path / "more", "r8", epsilon=3.0, seed=1)], store)
    after = files(store)
    changed = {name for name in after if after[name] != before.get(name)}
    assert len(changed) == 2
    assert all("mnist.online.k9.eps3." in name for name in changed)
    assert run_ids(store) == {*COHORTS, "r8"}


def test_collect_part_order_has_no_effect(parts, tmp_path) -> None:
    collect(parts, tmp_path / "one")
    for each in reversed(parts):
        collect([each], tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_collect_locked_store_waits(parts, tmp_path, capsys) -> None:
    store = tmp_path / "store"
    with only_writer(store):
        waiting = threading.Thread(target=collect, args=(parts, store))
        waiting.start()
        deadline, said = time.monotonic() + 60, ""
        while not said and time.monotonic() < deadline:
            time.sleep(0.05)
            said = capsys.readouterr().err
        assert said == f"{store}: locked by another command; waiting\n"
        assert waiting.is_alive()
        assert not content(store)
    waiting.join(60)
    assert run_ids(store) == set(COHORTS)


def test_collect_check_receives_changed_cohorts(tmp_path) -> None:
    store, seen = tmp_path / "store", []
    first = [part(tmp_path / "a", "a", momentum=0.5), part(tmp_path / "c", "c", epsilon=3.0)]
    collect(first, store)
    second = [part(tmp_path / "b", "b", momentum=0.9)]
    collect(second, store, check=lambda runs: seen.append({*runs["run_id"]}))
    assert seen == [{"a", "b"}]


@pytest.mark.parametrize("scored", [0, 1])
def test_run_ids_include_diverged(scored: int, tmp_path) -> None:
    one = tmp_path / "one"
    write_table(one / "runs.parquet", "runs", [run_row("r1", status="diverged", diverged_at=1)])
    rows = [evaluation_row("r1", 1)] * scored
    write_table(one / "evaluations.parquet", "evaluations", rows)
    collect([one, part(tmp_path / "two", "r2", seed=1)], tmp_path / "store")
    for folder, held in ((one, {"r1"}), (tmp_path / "store", {"r1", "r2"})):
        assert run_ids(folder) == held
        assert set(read_results(folder).runs["run_id"]) == held


@pytest.mark.parametrize("moment", range(5))
def test_read_results_during_conversion_stays_complete(moment: int, parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts[:2], tmp_path / "after")
    shutil.copytree(parts[0], store)
    shutil.copytree(tmp_path / "after", store / PENDING, ignore=shutil.ignore_patterns(".lock"))
    changes = []
    for kind in SCHEMAS:
        table = store / f"{kind}.parquet"
        changes += [
            table.unlink,
            lambda table=table: os.replace(store / PENDING / table.name, table),
        ]
    for change in changes[:moment]:
        change()
    found = read_results(store)
    assert sorted(found.runs["run_id"]) == sorted(found.evaluations["run_id"]) == ["r1", "r2"]
    assert run_ids(store) == {"r1", "r2"}
    collect(parts[:2], store)
    assert content(store) == content(tmp_path / "after")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_collect_invalid_stored_rows_raise(kind: str, parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts[:2], store)
    row = {"runs": run_row("r1"), "evaluations": evaluation_row("r1")}[kind]
    wrong = {"runs": {"wall_seconds": -1.0}, "evaluations": {"threshold": -1.0}}[kind]
    (path,) = (store / f"{kind}.parquet").glob("mnist.online.k9.eps9.*")
    write_table(path, kind, [row | wrong])
    before = content(store)
    (name,) = wrong
    with pytest.raises(OsoError, match=rf"{path.name}: .*{name}"):
        collect(parts[2:3], store)
    assert content(store) == before


def test_state_replaced_file_differs(parts) -> None:
    for kind in SCHEMAS:
        path = parts[0] / f"{kind}.parquet"
        before, known = read._state(parts[0]), path.stat()
        assert read._state(parts[0]) == before
        copy = path.with_name("copy")
        shutil.copy(path, copy)
        os.utime(copy, ns=(known.st_atime_ns, known.st_mtime_ns))
        os.replace(copy, path)
        assert read._state(parts[0]) != before


# How often two collect at once; OSO_TEST_ROUNDS=100 is the long form.
ROUNDS = int(os.environ.get("OSO_TEST_ROUNDS", "2"))
# A process that collects whenever it is told a part and a store.
WRITER = """
import sys
from pathlib import Path
from oso_dp.results.collect import collect
print("ready", flush=True)
for line in sys.stdin:
    part, store = line.rstrip("\\n").split("\\t")
    collect([Path(part)], Path(store))
    print("done", flush=True)
"""


def test_collect_concurrent_writers_keep_rows(tmp_path) -> None:
    runs = ["r0", "r1"]
    for number, run in enumerate(runs):
        part(tmp_path / f"0.{run}", run, seed=number)
        part(tmp_path / f"1.{run}", run, epsilon=1.0 + number)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER], **pipes) for _ in runs]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    for number in range(ROUNDS):
        store, seen = tmp_path / f"store{number}", set()
        for writer, run in zip(writers, runs, strict=True):
            writer.stdin.write(f"{tmp_path}/{number % 2}.{run}\t{store}\n")
            writer.stdin.flush()
        outputs = [writer.stdout for writer in writers]
        while len(select.select(outputs, [], [], 0)[0]) < len(writers):
            assert seen <= run_ids(store) <= set(runs)
            seen = run_ids(store)
            if seen:
                assert seen <= set(read_results(store).runs["run_id"])
        assert [output.readline() for output in outputs] == ["done\n"] * 2
        assert set(read_results(store).runs["run_id"]) == run_ids(store) == set(runs)
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]


def test_collect_after_waiting_rereads_store(parts, tmp_path, monkeypatch) -> None:
    import oso_dp.results.collect as module

    store, real = tmp_path / "store", module.only_writer

    def late(folder):
        monkeypatch.setattr(module, "only_writer", real)
        collect(parts[1:2], store)
        return real(folder)

    monkeypatch.setattr(module, "only_writer", late)
    collect(parts[:1], store)
    assert run_ids(store) == {"r1", "r2"}
