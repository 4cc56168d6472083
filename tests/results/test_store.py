"""A store's change is whole or not there, whoever is killed, and whoever else writes."""

import os
import shutil
import subprocess
import sys
import threading

import pyarrow.parquet as pq
import pytest

from oso_dp.errors import OsoError
from oso_dp.results import collect as module
from oso_dp.results.collect import collect, finished_runs
from oso_dp.results.lock import only_writer
from oso_dp.results.read import read_results, run_ids
from oso_dp.results.schema import SCHEMAS
from oso_dp.results.write import write_table

from .conftest import evaluation_row, run_row


def part(folder, run_id, **other):
    """A folder with one run, of whichever cohort."""
    write_table(folder / "evaluations.parquet", "evaluations", [evaluation_row(run_id)])
    write_table(folder / "runs.parquet", "runs", [run_row(run_id, **other)])
    return folder


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


COHORTS = {
    "r1": {},
    "r2": {"epsilon": 3.0},
    "r3": {"method": "no_dp", "epsilon": None, "delta": None},
    "r4": {"momentum": 0.5},  # in none of these names of files do the two differ:
    "r5": {"precision": "bfloat16"},
    "r6": {"settings": '{"model": "other"}'},
    "r7": {"selection": "random_stopping"},
}


@pytest.fixture
def parts(tmp_path):
    return [part(tmp_path / name, name, **other) for name, other in COHORTS.items()]


def test_each_identity_has_a_file_of_its_own(parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts, store)
    names = sorted(path.name for path in (store / "runs.parquet").iterdir())
    assert len(names) == len(COHORTS)
    assert sum(name.startswith("mnist.online.k9.eps9.") for name in names) == 5
    assert sum(name.startswith("mnist.online.k9.eps9.random_stopping.") for name in names) == 1
    assert sum(name.startswith("mnist.no_dp.k9.nonprivate.") for name in names) == 1
    assert run_ids(store) == finished_runs(store) == set(COHORTS)


def test_what_is_added_leaves_all_other_files_as_they_are(parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts, store)
    before = files(store)
    collect([part(tmp_path / "more", "r8", epsilon=3.0, seed=1)], store)
    after = files(store)
    changed = {name for name in after if after[name] != before.get(name)}
    assert len(changed) == 2
    assert all("mnist.online.k9.eps3." in name for name in changed)
    assert finished_runs(store) == {*COHORTS, "r8"}


def test_the_order_of_parts_does_not_matter(parts, tmp_path) -> None:
    collect(parts, tmp_path / "one")
    for each in reversed(parts):
        collect([each], tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_store_of_two_files_becomes_one_of_folders(parts, tmp_path) -> None:
    store = part(tmp_path / "store", "r0", seed=5)
    collect(parts, store)
    assert finished_runs(store) == {"r0", *COHORTS}
    assert len(read_results(store).runs) == 1 + len(COHORTS)
    assert (store / "runs.parquet").is_dir()


class KilledError(BaseException):
    """Nothing that the code catches."""


def killed_at(monkeypatch, call: int) -> None:
    """From now on the program dies at its call-th change of a name in the file system."""
    count = iter(range(1, 10**6))
    for name in ("replace", "mkdir", "unlink", "rmdir"):
        real = getattr(os, name)

        def change(*args, real=real, **kwargs):
            if next(count) >= call:
                raise KilledError
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, change)


@pytest.mark.parametrize("two_files", [True, False])
def test_a_kill_at_any_moment_loses_nothing(parts, tmp_path, monkeypatch, two_files) -> None:
    """Whatever stands on disk then is the store before or after, also for who only reads it."""
    first, *others = parts[:3]
    old, new = {"r1"}, {"r1", "r2", "r3"}
    moments = 0
    for call in range(1, 500):
        store = tmp_path / f"store{call}"
        if two_files:
            shutil.copytree(first, store)
        else:
            collect([first], store)
        with monkeypatch.context() as patch:
            killed_at(patch, call)
            try:
                collect(others, store)
            except KilledError:
                moments += 1
            else:
                break
        assert run_ids(store) in (old, new)
        assert set(read_results(store).runs["run_id"]) in (old, new)
        collect(others, store)
        assert set(read_results(store).runs["run_id"]) == new
        assert sorted(p.name for p in store.iterdir() if p.name != ".lock") == [
            *("evaluations.parquet", "runs.parquet"),
        ]
        shutil.rmtree(store)
    assert moments > 15


def test_many_at_once_lose_nothing(parts, tmp_path) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-m", "oso_dp", "collect", "--store", str(store)]
    workers = [subprocess.Popen([*command, str(path)]) for path in parts[:4]]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert finished_runs(store) == {"r1", "r2", "r3", "r4"}
    read_results(store)


def test_who_waits_says_so(parts, tmp_path, capsys) -> None:
    store = tmp_path / "store"
    with only_writer(store):
        waiting = threading.Thread(target=collect, args=(parts, store))
        waiting.start()
        said = ""
        while "waiting" not in said and waiting.is_alive():
            waiting.join(0.1)
            said += capsys.readouterr().err
        assert waiting.is_alive()
        assert not content(store)
    waiting.join(30)
    assert said == f"{store}: another command writes to it; waiting\n"
    assert finished_runs(store) == set(COHORTS)


def test_a_full_disk_changes_nothing(parts, tmp_path, monkeypatch) -> None:
    store = tmp_path / "store"
    collect(parts[:1], store)
    before, calls = content(store), iter(range(100))

    def full(table, where, **options):
        if next(calls) == 3:
            raise OSError(28, "No space left on device")
        real(table, where, **options)

    real = pq.write_table
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OsoError, match="No space left on device"):
        collect(parts[1:], store)
    assert content(store) == before
    assert not (store / module.STAGING).exists()
