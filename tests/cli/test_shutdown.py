"""A training job that shall end: by a signal, or since nobody wants its study any more."""

import os
import signal

import pytest

from oso_dp.cli import shutdown as module
from oso_dp.cli.shutdown import ShutdownMonitor
from oso_dp.errors import InterruptedByUser
from oso_dp.snakemake_support.study_lock import LOCK_FILE, StudyLock


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_a_step_and_the_next_does_not(number) -> None:
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


def test_a_job_ends_once_nobody_leads_its_study(tmp_path, monkeypatch) -> None:
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


def test_a_job_that_was_started_by_hand_has_no_study_to_outlive(monkeypatch) -> None:
    monkeypatch.delenv(LOCK_FILE, raising=False)
    leave = ShutdownMonitor()
    leave.polled_at -= 60
    leave.poll("step 1")
