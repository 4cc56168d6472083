"""A command that gets a signal ends at once; a training job ends after its step."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oso_dp.cli import shutdown as module
from oso_dp.cli.shutdown import ShutdownMonitor
from oso_dp.errors import InterruptedByUser, SignalReceived
from oso_dp.signals import exit_on_signals
from oso_dp.snakemake_support.study_lock import LOCK_FILE, StudyLock

# A command that says when it is at work, and works for longer than the test.
AT_WORK = """
import sys, time
from {module} import {owner}
def work(*arguments, **more):
    print("at work", flush=True)
    time.sleep(60)
{owner}.{name} = work
from oso_dp.cli import main
sys.argv = ["oso", *{arguments!r}]
main()
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM]
CALIBRATE = ["--epsilon", "3", "--examples", "60000", "--batch-size", "512", "--epochs", "1"]


def children(pid: int) -> set[int]:
    """Of this process, and theirs, by /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    below, size = {pid}, 0
    while size < len(below):
        size = len(below)
        below |= {child for child, parent in parents.items() if parent in below}
    return below - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(code: str | list[str], **more) -> subprocess.Popen:
    """A process that heeds Ctrl-C, also where the tests run in a shell's background, whose jobs
    ignore it: a child inherits that, but no handler."""
    command = [sys.executable, *(["-c", code] if isinstance(code, str) else code)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, **more,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("number", "module", "owner", "name", "arguments"),
    [
        (
            signal.SIGTERM,
            "oso_dp.accounting.search",
            "Search",
            "noise_multiplier",
            ["calibrate", *CALIBRATE, "--runs", "1"],
        ),
        (signal.SIGINT, "oso_dp.reporting.page", "build", "build_report", ["report", "results"]),
    ],
)
def test_main_signal_named_on_exit(repo, number, module, owner, name, arguments) -> None:
    code = AT_WORK.format(module=module, owner=owner, name=name, arguments=arguments)
    with started(code, cwd=repo) as process:
        try:
            assert process.stdout.readline() == "at work\n"
            process.send_signal(number)
            _, error = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, error) == (130, f"oso: stopped by {number.name}\n")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_audit_signal_ends_workers(tmp_path, number) -> None:
    arguments = ["-m", "oso_dp", "audit", "--method", "online", "--method", "fixed_threshold"]
    with started([*arguments, "--runs", "200000", "--workers", "2"], cwd=tmp_path) as process:
        workers: set[int] = set()
        try:
            began = time.monotonic()
            # Two workers, and the keeper of their shared resources; until they are at work.
            while time.monotonic() - began < 60 and len(workers) < 3:
                workers = children(process.pid)
                time.sleep(0.1)
            assert len(workers) >= 3
            time.sleep(1)
            process.send_signal(number)
            output, error = process.communicate(timeout=20)
            waited = time.monotonic()
            while time.monotonic() - waited < 10 and any(map(alive, workers)):
                time.sleep(0.1)
            assert not any(map(alive, workers))
        finally:
            for pid in (*workers, process.pid):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
    assert (process.returncode, output) == (130, "")
    assert error == f"oso: stopped by {number.name}\n"


def test_exit_on_signals_previous_handlers_kept() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of a job in a shell's background
        with exit_on_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            with pytest.raises(SignalReceived, match=r"^SIGTERM$"):
                os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # a second one acts at once
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with exit_on_signals():
        pass
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_shutdown_monitor_signal_waits_for_step(number) -> None:
    before = signal.getsignal(number)
    leave = ShutdownMonitor()
    with leave.handle_signals():
        leave.poll("step 1 of 9")
        os.kill(os.getpid(), number)
        with pytest.raises(
            InterruptedByUser, match=f"^{number.name}: stopped at step 2 of 9; the next"
        ):
            leave.poll("step 2 of 9")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_shutdown_monitor_study_ended_interrupts(tmp_path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    leader = StudyLock(tmp_path)
    leader.acquire()
    monkeypatch.setenv(LOCK_FILE, str(leader.path))
    leave = ShutdownMonitor()
    for now[0] in (0.5, 2.0, 4.0):
        leave.poll("step 1")
    leader.release()
    leave.poll("step 2")  # within a second of the last look
    now[0] = 6.0
    with pytest.raises(
        InterruptedByUser, match="the study that started this job has ended: stopped at s"
    ):
        leave.poll("step 3")
