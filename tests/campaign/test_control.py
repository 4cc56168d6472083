"""Pauses: everybody hears of them, nobody's time counts, and a kill leaves nothing behind."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from oso_dp.campaign.control import Control, StoppedError, act, clear, main
from oso_dp.results.read import read_results


@pytest.fixture
def results(tmp_path) -> Path:
    clear(tmp_path / "out")
    return tmp_path / "out"


def test_a_pause_holds_everybody_and_takes_no_time(results) -> None:
    """By a clock that only moves while somebody sleeps."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 105:
            act("resume", results)

    control = Control(results / ".progress", lambda: now[0], sleep)
    control.look()
    (results / ".progress" / "pause").touch()
    before = control.clock()
    control.look()
    assert now[0] > 105
    assert control.clock() == pytest.approx(before)
    now[0] += 3
    assert control.clock() == pytest.approx(before + 3)


def test_each_command_says_what_came_of_it(results) -> None:
    assert act("resume", results) == "was not paused"
    assert act("pause", results) == "paused: nobody is at work"
    assert act("resume", results) == "goes on"
    assert act("resume", results) == "was not paused"
    assert act("stop", results) == "stopped: nobody is at work"


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_a_command_returns_once_the_last_has_heard(results, action) -> None:
    heard, done = [], []

    def work(steps: float) -> None:
        control = Control(results / ".progress")
        with control.at_work():
            try:
                while not done:
                    time.sleep(steps)
                    if (results / ".progress" / action).exists():
                        heard.append(steps)
                    control.look()
            except StoppedError:
                pass

    workers = [threading.Thread(target=work, args=(steps,)) for steps in (0.05, 0.6)]
    for worker in workers:
        worker.start()
    time.sleep(0.2)
    assert "nobody is at work" in act(action, results)
    assert set(heard) == {0.05, 0.6}
    done.append(True)
    act("resume", results)
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()


def test_a_campaign_that_begins_forgets_earlier_commands(results) -> None:
    act("pause", results)
    clear(results)
    Control(results / ".progress").look()


@pytest.mark.parametrize("arguments", [[], ["pause"], ["halt", "x"], ["pause", "nowhere"]])
def test_a_mistake_gets_one_line(arguments, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# Slow enough to be met in the middle: each step waits.
SLOW = """
import runpy, sys, time
from oso_dp.campaign import campaign as module
look = module.Campaign._watched
def watched(self, pace):
    inner = look(self, pace)
    def on_progress(done, step):
        time.sleep(0.05)
        inner(done, step)
    return on_progress
module.Campaign._watched = watched
LIMIT
sys.argv[0] = "oso_dp.campaign"
runpy.run_module("oso_dp.campaign", run_name="__main__")
"""


def team(folder: Path, out: Path, *arguments: str, slow: bool = True, limit: str = ""):
    """Two processes on the small study's 16 runs; the leader's lines are read from its output."""
    given = ["--minutes", "5", "--results", str(out), "--plan", str(folder / "plan.json")]
    given += ["--data", str(folder / "data"), "--device", "cpu", "--processes", "2"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "oso_dp.campaign"]
    if slow:
        (out.parent / "slow").mkdir(exist_ok=True)
        script = out.parent / "slow" / "sitecustomize.py"
        script.write_text(SLOW.split("sys.argv")[0].replace("LIMIT", limit))
        paths = [str(script.parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.Popen(
        [*command, *given, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def complete(out: Path) -> list[str]:
    return [run for part in out.glob("[!.]*") for run in read_results(part).runs["run_id"]]


def wait_for(condition, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_team_is_paused_collected_killed_and_resumed_without_losing_a_run(
    folder, tmp_path, monkeypatch
) -> None:
    """What `make campaign` and its friends do, with the runs that came out of it counted."""
    out, store = tmp_path / "out", tmp_path / "store"
    first = team(folder, out)
    wait_for(lambda: out.exists() and len(complete(out)) >= 2)
    assert "paused" in act("pause", out)
    before = sorted(complete(out))
    time.sleep(1.5)
    assert sorted(complete(out)) == before  # nobody works
    collect = [sys.executable, "-m", "oso_dp", "collect", *map(str, out.glob("[!.]*"))]
    assert subprocess.run([*collect, "--store", str(store)], check=False).returncode == 0
    assert sorted(read_results(store).runs["run_id"]) == before
    act("resume", out)
    wait_for(lambda: len(complete(out)) > len(before))
    workers = children(first.pid)
    assert len(workers) == 2
    first.send_signal(signal.SIGKILL)  # the leader only: its workers see that it is gone
    first.communicate()
    wait_for(lambda: not any(Path(f"/proc/{each}/cmdline").exists() for each in workers))
    kept = set(complete(out))
    assert set(before) < kept
    second = team(folder, out, "--have", str(store), slow=False)
    output, errors = second.communicate(timeout=120)
    assert (second.returncode, errors) == (0, "")
    assert re.search(r"x 2: \d+ runs done; 0 left, about 0\.0 hours at the measured speed", output)
    runs = complete(out)
    assert len(runs) == len(set(runs)) == 16
    assert kept <= set(runs)


@pytest.mark.parametrize(("signals", "nice"), [(signal.SIGTERM, 19), (signal.SIGINT, 0)])
def test_a_team_leaves_nobody_behind_and_gives_way(folder, tmp_path, signals, nice) -> None:
    """To every other session, not only to what was started from the same terminal."""
    out = tmp_path / "out"
    leader = team(folder, out, "--nice", str(nice))
    wait_for(lambda: out.exists() and len(complete(out)) >= 1)
    workers = children(leader.pid)
    assert len(workers) == 2
    if nice and Path("/proc/self/autogroup").exists():  # Linux's groups of processes
        groups = {Path(f"/proc/{each}/autogroup").read_text() for each in workers}
        assert len(groups) == 2
        assert all(text.strip().endswith(f"nice {nice}") for text in groups)
    if nice:
        assert {os.getpriority(os.PRIO_PROCESS, each) for each in workers} == {nice}
    leader.send_signal(signals)
    leader.communicate(timeout=60)
    assert not any(Path(f"/proc/{each}/cmdline").exists() for each in workers)
    assert len(complete(out)) >= 1


def test_a_full_disk_ends_a_team_with_one_line(folder, tmp_path) -> None:
    """No file may grow beyond 8 kB: a checkpoint cannot be written."""
    limit = f"import resource; resource.setrlimit({resource.RLIMIT_FSIZE}, (8192, 8192))"
    limit += "; import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    leader = team(folder, tmp_path / "out", limit=limit)
    _, errors = leader.communicate(timeout=60)
    assert leader.returncode == 2
    assert errors.count("\n") == 1
    assert "cannot write this file" in errors
    assert complete(tmp_path / "out") == []


def test_code_that_is_gone_is_said(folder, tmp_path, repo) -> None:
    import shutil

    checkout = tmp_path / "checkout"
    shutil.copytree(repo / "src", checkout / "src")
    out = tmp_path / "out"
    (out.parent / "slow").mkdir()
    given = ["--minutes", "5", "--results", str(out), "--plan", str(folder / "plan.json")]
    given += ["--data", str(folder / "data"), "--device", "cpu"]
    script = SLOW.replace("LIMIT", "")
    done = subprocess.Popen(
        [sys.executable, "-c", script, *given],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
    )
    wait_for(lambda: out.exists() and len(complete(out)) >= 1)
    shutil.rmtree(checkout)
    _, errors = done.communicate(timeout=60)
    assert done.returncode == 2
    assert errors.count("\n") == 1
    assert "this checkout is gone" in errors
