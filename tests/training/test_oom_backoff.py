"""A job that was killed for want of memory begins with half as many runs, others with as many."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from oso_dp.training import oom_backoff
from oso_dp.training.oom_backoff import limit_parallel_runs

CGROUPS = (  # where a group of processes gets its limit, in both versions of Linux's control groups
    ("/sys/fs/cgroup/memory/oso-test", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup/oso-test", "memory.max"),
)


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that has killed nothing so far: its identity and its count, to be changed."""
    state = {"kernel": "one", "killed": 0}
    monkeypatch.setattr(oom_backoff, "_count_oom_kills", lambda: (state["kernel"], state["killed"]))
    return state


def start(folder: Path, wanted: int = 8, ended_by: str = "") -> int:
    """How many runs a start of the job has at once; the note stays if it is killed."""
    with limit_parallel_runs(folder, wanted) as runs:
        note = (folder / "at-once.json").read_bytes()
    if ended_by == "a kill":
        (folder / "at-once.json").write_bytes(note)
    return runs


def test_limit_parallel_runs_oom_kill_halves(tmp_path, kernel) -> None:
    assert start(tmp_path, ended_by="a kill") == 8
    assert start(tmp_path, ended_by="a kill") == 8  # of any other kind
    kernel["killed"] += 1
    assert start(tmp_path, ended_by="a kill") == 4
    assert start(tmp_path, ended_by="a kill") == 4  # the same one does not count twice
    kernel["killed"] += 2
    assert start(tmp_path) == 2
    kernel["killed"] += 1  # it was done by then
    assert start(tmp_path) == 8
    assert list(tmp_path.iterdir()) == []


def test_limit_parallel_runs_reboot_ignores_kills(tmp_path, kernel) -> None:
    start(tmp_path, ended_by="a kill")
    kernel.update(kernel="after a restart", killed=5)
    assert start(tmp_path) == 8


def test_limit_parallel_runs_single_run_warns(tmp_path, kernel, caplog) -> None:
    start(tmp_path, wanted=1, ended_by="a kill")
    kernel["killed"] += 1
    assert start(tmp_path, wanted=1) == 1
    assert caplog.messages == [
        f"{tmp_path}: ran out of memory before; now 1 of 1 parallel runs; run fewer "
        "processes at once"
    ]


@pytest.mark.parametrize(
    ("error", "next_time"),
    [
        (MemoryError(), 4),
        (torch.OutOfMemoryError("CUDA out of memory."), 4),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), 4),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), 8),
        (KeyboardInterrupt(), 8),
    ],
)
def test_limit_parallel_runs_memory_errors_halve(tmp_path, kernel, error, next_time) -> None:
    def job() -> None:
        with limit_parallel_runs(tmp_path, 8):
            raise error

    with pytest.raises(type(error)):
        job()
    kernel["killed"] += 1  # somebody else
    assert start(tmp_path) == next_time


@pytest.mark.parametrize(
    "note", ["", "{", "[]", "null", '{"runs": "x"}', '{"runs": 1.5}', '{"killed": {}}', "\0"]
)
def test_limit_parallel_runs_invalid_note_ignored(tmp_path, note) -> None:
    (tmp_path / "at-once.json").write_text(note)
    assert start(tmp_path) == 8


@pytest.mark.parametrize("runs", [-3, 0, 10**9])
def test_limit_parallel_runs_note_clamped(tmp_path, runs) -> None:
    (tmp_path / "at-once.json").write_text(json.dumps({"runs": runs}))
    assert 1 <= start(tmp_path) <= 8


@pytest.fixture
def limited():
    """The file through which a process comes under a limit of 300 MB, for as long as it runs."""
    for place, limit in CGROUPS:
        folder = Path(place)
        try:
            folder.mkdir()
            (folder / limit).write_text(str(300 << 20))
        except OSError:
            continue
        yield folder / "cgroup.procs"
        folder.rmdir()
        return
    pytest.skip("no control group can be made here")


GREEDY = """
import sys
from pathlib import Path
from oso_dp.training.oom_backoff import limit_parallel_runs
Path(sys.argv[1]).write_text("0")
with limit_parallel_runs(Path(sys.argv[2]), 8) as runs:
    kept = [b"x" * (50 << 20) for _ in range(runs)]
    print(runs)
"""


def test_limit_parallel_runs_cgroup_kill_halves(tmp_path, limited) -> None:
    """The kernel kills eight runs of 50 MB under a limit of 300 MB; the next start has four."""
    command = [sys.executable, "-c", GREEDY, str(limited), str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (-9, "")
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (0, "4\n"), second.stderr
    assert "ran out of memory before; now 4 of 8 parallel runs" in second.stderr
