"""A store's change is whole or not there, wherever it is interrupted, and the next one ends it."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import oso_dp.files
from oso_dp.errors import OsoError
from oso_dp.results.collect import collect
from oso_dp.results.read import read_results, run_ids

from .conftest import evaluation_row, part, run_row, write_table

FIRST, OTHERS = {"r1"}, {"r2"}
# At each operation in the long form, else at every 40th, from another one in each case.
LONG = int(os.environ.get("OSO_TEST_ROUNDS", "10")) >= 100


class KilledError(BaseException):
    """Nothing that the code catches."""


class Faults:
    """Counts the operations on files, and lets one of them fail."""

    def __init__(self, at: int, fails: Callable[[int, int, str], None]) -> None:
        """fails: called with the number of this operation, `at`, and the operation's name."""
        self.at, self.fails = at, fails
        self.number = count(1)
        self.met = False

    def meet(self, name: str) -> None:
        number = next(self.number)
        if number >= self.at:
            self.met = True
            self.fails(number, self.at, name)

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("replace", "rename", "mkdir", "unlink", "rmdir", "fsync"):
            patch.setattr(os, name, self._watched(name, getattr(os, name)))
        patch.setattr(oso_dp.files, "open", self._open, raising=False)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.meet(name)
            return real(*arguments, **options)

        return call

    def _open(self, *arguments: Any, **options: Any) -> Any:
        self.meet("open")
        file = open(*arguments, **options)  # noqa: SIM115
        return Watched(file, self)


class Watched:
    """A file of which half a write arrives where the fault is met."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults, self._written = file, faults, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, content: Any) -> int:
        try:
            if not self._written:  # of a file's hundred writes one: all end in half a file
                self._faults.meet("write")
            self._written = True
        except BaseException:
            self._file.write(bytes(content)[: len(content) // 2])
            self._file.flush()
            raise
        return int(self._file.write(content))


def killed(number: int, at: int, name: str) -> None:
    """From then on nothing happens any more, no clearing up either."""
    raise KilledError


def full_disk(number: int, at: int, name: str) -> None:
    """From then on nothing new has room; names can still be taken away."""
    if name not in ("unlink", "rmdir"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def bad_moment(number: int, at: int, name: str) -> None:
    """One operation fails, and those after it do not."""
    if number == at:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def two_files(parts: list[Path], store: Path) -> None:
    """As older versions wrote it."""
    shutil.copytree(parts[0], store)


def a_file_per_cohort(parts: list[Path], store: Path) -> None:
    collect(parts[:1], store)


def files_of_any_name(parts: list[Path], store: Path) -> None:
    for kind in ("runs", "evaluations"):
        (store / f"{kind}.parquet").mkdir(parents=True)
        shutil.copy(parts[0] / f"{kind}.parquet", store / f"{kind}.parquet" / "a.parquet")


def nothing(parts: list[Path], store: Path) -> None:
    """The first collection of all."""


@pytest.mark.parametrize("fails", [killed, full_disk, bad_moment])
@pytest.mark.parametrize("begun", [two_files, a_file_per_cohort, files_of_any_name, nothing])
def test_collect_after_any_fault_repairs_store(parts, tmp_path, monkeypatch, begun, fails) -> None:
    old = set() if begun is nothing else FIRST
    new = FIRST | OTHERS
    given = parts[:2]
    for moment in moments(begun.__name__ + fails.__name__):
        store = tmp_path / f"store{moment}"
        begun(parts, store)
        faults = Faults(moment, fails)
        with monkeypatch.context() as patch, suppress(KilledError, OsoError):
            faults.plant(patch)
            collect(given, store)
        if not faults.met:
            break
        held = run_ids(store)
        assert held in (old, new)
        if held:
            assert set(read_results(store).runs["run_id"]) == held
        collect(given, store)
        assert set(read_results(store).runs["run_id"]) == new
        assert sorted(path.name for path in store.iterdir()) == [
            *(".lock", "evaluations.parquet", "runs.parquet")
        ]
    assert moment > 20


def moments(case: str) -> Iterator[int]:
    yield from range(1, 500) if LONG else range(1 + len(case) % 40, 500, 40)
    pytest.fail("the faults never end")


def test_collect_full_disk_leaves_store_unchanged(parts, tmp_path, monkeypatch) -> None:
    store = tmp_path / "store"
    collect(parts[:1], store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        Faults(3, full_disk).plant(patch)
        with pytest.raises(OsoError, match="No space left on device"):
            collect(parts[1:], store)
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("whole", ["runs", "evaluations"])
@pytest.mark.parametrize("begun", [two_files, a_file_per_cohort, files_of_any_name])
def test_collect_missing_table_restored(parts, tmp_path, begun, whole) -> None:
    store = tmp_path / "store"
    begun(parts, store)
    lost = "evaluations" if whole == "runs" else "runs"
    table = store / f"{lost}.parquet"
    shutil.rmtree(table) if table.is_dir() else table.unlink()
    assert run_ids(store) == set()  # so that a job trains it again
    collect(parts[:1], store)
    assert set(read_results(store).runs["run_id"]) == FIRST


@pytest.mark.parametrize("older", ["runs", "evaluations"])
def test_collect_outdated_table_completed(tmp_path, older) -> None:
    one, two = part(tmp_path / "one", "r1"), part(tmp_path / "two", "r2", seed=1)
    store = tmp_path / "store"
    collect([one, two], store)
    (path,) = (store / f"{older}.parquet").glob("*.parquet")
    rows = {"runs": [run_row("r1")], "evaluations": [evaluation_row("r1")]}
    write_table(path, older, rows[older])
    with pytest.raises(OsoError, match=r"run r2 .*collect"):
        read_results(store)
    with pytest.raises(OsoError, match=r"run r2 .*collect"):
        collect([one], store)
    collect([two], store)
    assert set(read_results(store).runs["run_id"]) == {"r1", "r2"}


def test_collect_merges_duplicate_run_files(parts, tmp_path) -> None:
    store = tmp_path / "store"
    collect(parts[:2], store)
    files_of_any_name(parts, tmp_path / "other")
    for path in (tmp_path / "other").rglob("a.parquet"):
        shutil.copy(path, store / path.parent.name)
    with pytest.raises(OsoError, match="run r1 appears more than once"):
        read_results(store)
    collect(parts[:1], store)
    assert set(read_results(store).runs["run_id"]) == {"r1", "r2"}
