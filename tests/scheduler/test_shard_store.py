"""Files that others wrote into a campaign's folder are set aside or named; no run is lost."""

import json
import os
import time

import pytest
from tests.scheduler.conftest import RUNS, KilledError, list_runs

from oso_dp.errors import OsoError
from oso_dp.scheduler.shard_store import ShardStore, list_stores

SPOILED = {
    "empty": b"",
    "cut off": b'["a", "b',
    "no runs": b"[]",
    "nested without end": b"[" * 100_000,
    "longer than any": b"[" + b" " * (2 << 20) + b"]",
    "a path": b'["../../outside"]',
}


@pytest.fixture
def started(make, machine, tmp_path):
    """The runs.json of a group that was killed in training, after one finished group."""
    make(25.0, "online", 2).run()
    machine.kill_at = 3
    with pytest.raises(KilledError):
        make(parallel=2).run()
    (path,) = (tmp_path / "out/.progress").glob("*/runs.json")
    return path


def check_finished(make, machine, out) -> None:
    make(parallel=2).run()
    found = list_runs(out)
    assert len(found) == len({*found}) == RUNS
    assert sorted(machine.trained) == sorted(found)


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_group_is_set_aside(name, started, make, machine, tmp_path, caplog) -> None:
    started.write_bytes(SPOILED[name])
    check_finished(make, machine, tmp_path / "out")
    (line,) = caplog.messages
    assert line.startswith(
        f"{started}: damaged, or of an older version; renamed to runs.json.damaged"
    )
    assert "\n" not in line


def test_part_of_a_group_is_set_aside(started, make, machine, tmp_path) -> None:
    started.write_bytes(json.dumps(json.loads(started.read_bytes())[:1]).encode())
    check_finished(make, machine, tmp_path / "out")


def test_pipe_as_group_is_named(started, make, machine, tmp_path) -> None:
    started.unlink()
    os.mkfifo(started)
    with pytest.raises(OsoError, match=r"runs\.json: cannot be read \(not a regular file\)"):
        make().run()
    started.unlink()
    check_finished(make, machine, tmp_path / "out")


def test_folders_of_others_stay(started, make, machine, tmp_path, caplog) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    cohort = started.parent.name.rpartition(".")[0]
    other = started.parent.with_name(f"{cohort}.random_stopping.0123456789ab")
    other.mkdir()
    for folder in (outside, other):
        (folder / "runs.json").write_text("[]")
    started.parent.with_name(f"{cohort}.{'0' * 12}").symlink_to(outside)
    check_finished(make, machine, tmp_path / "out")
    assert (other / "runs.json").exists()
    assert (outside / "runs.json").exists()
    assert caplog.messages == []


@pytest.mark.parametrize("content", [b"", b"PAR1" * 99])
def test_spoiled_shard_is_named_and_stays(content, make, tmp_path) -> None:
    make(only="online").run()
    shard = list_stores(tmp_path / "out")[0]
    (shard / "runs.parquet").write_bytes(content)
    with pytest.raises(OsoError, match=f"{shard.name}/runs.parquet: not a readable Parquet file"):
        ShardStore(tmp_path / "out")
    assert len(list_stores(tmp_path / "out")) == 4


def test_status_line_is_due_once(tmp_path) -> None:
    stores = [ShardStore(tmp_path) for _ in range(3)]
    assert [store.is_status_due(60.0) for store in stores] == [True, False, False]
    for moment in (time.monotonic() - 60, time.monotonic() + 1e6):  # the latter: before a reboot
        (tmp_path / ".progress/status").write_text(repr(moment))
        assert [store.is_status_due(60.0) for store in stores] == [True, False, False]
