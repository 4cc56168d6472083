"""A clock that jumps at every look, a day forwards or an hour backwards: nothing comes of it."""

import itertools
import os
import time

import pytest

from oso_dp.errors import InterruptedByUser
from oso_dp.locks import try_lock
from oso_dp.snakemake_support.study_lock import StudyLock, is_locked
from oso_dp.training import loop
from oso_dp.training.loop import train

DAY, HOUR = 86_400, 3_600


@pytest.fixture
def jumping(monkeypatch) -> None:
    """The wall's clock; the processor's own, which measures what lasts, cannot be set."""
    real, jumps = time.time, itertools.cycle([0, DAY, -HOUR])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))


def test_train_jumping_clock_has_no_effect(
    arrays, make_task, make_run, tmp_path, jumping, monkeypatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_TIME_FRACTION", float("inf"))
    job = make_task("online", steps=6, evaluate_every=2), [make_run(), make_run("b", 1)], arrays
    began = time.perf_counter()
    whole = train(*job)
    lasted = time.perf_counter() - began
    path, kept = tmp_path / "state.pt", []

    def leave(step: int) -> None:
        kept.append(path.exists())
        if path.exists():
            os.utime(path, (kept.count(True) * DAY, HOUR))  # its age says nothing
        if step in (3, 5):
            raise InterruptedByUser

    for _ in range(2):
        with pytest.raises(InterruptedByUser):
            train(*job, checkpoint=path, fingerprint="f", on_progress=leave)
    again = train(*job, checkpoint=path, fingerprint="f", on_progress=leave)
    assert kept == [False, True, True, True, True, True]
    for one, other in zip(whole, again, strict=True):
        assert (one.evaluations, one.ledger) == (other.evaluations, other.ledger)
        assert other.wall_seconds >= 0
    assert 0 < sum(one.wall_seconds for one in whole) <= lasted


@pytest.mark.parametrize("age", [-DAY, 0, HOUR, DAY])
def test_study_lock_age_has_no_effect(age, tmp_path, jumping) -> None:
    leader = StudyLock(tmp_path)
    leader.acquire()
    at = time.time() - age
    os.utime(leader.path, (at, at))
    assert is_locked(leader.path)
    assert try_lock(leader.path, 0.01) is None
    leader.release()
    assert not is_locked(leader.path)
