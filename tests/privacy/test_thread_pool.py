"""Jobs that threads share: each is done once, and no error is lost."""

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from oso_dp.privacy.thread_pool import run_in_threads


@pytest.mark.parametrize("threads", [1, 5])
def test_run_in_threads_jobs_done_once(threads: int) -> None:
    done: Counter[int] = Counter()
    for _ in range(50):
        run_in_threads(lambda number: done.update([number]), [(n,) for n in range(40)], threads)
    assert done == Counter({number: 50 for number in range(40)})


def test_run_in_threads_jobs_overlap() -> None:
    together = threading.Barrier(2, timeout=20)
    run_in_threads(lambda _: together.wait(), [(0,), (1,)], 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_run_in_threads_uses_allowed_threads(threads: int) -> None:
    """Each job lasts long enough for all allowed threads to take part."""
    seen = set()

    def work(_: int) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.02)

    run_in_threads(work, [(n,) for n in range(20)], threads)
    assert len(seen) == threads


def test_run_in_threads_waits_for_helper() -> None:
    """The caller finishes its own job long before the helper."""
    begun = threading.Event()
    done = []

    def work(number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(20)
        else:
            begun.set()
            time.sleep(0.2)
        done.append(number)

    run_in_threads(work, [(0,), (1,)], 2)
    assert sorted(done) == [0, 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_run_in_threads_job_error_raised(threads: int) -> None:
    def work(number: int) -> None:
        if number == 3:
            raise RuntimeError("three")

    with pytest.raises(RuntimeError, match="three"):
        run_in_threads(work, [(n,) for n in range(8)], threads)


@pytest.mark.parametrize("threads", [2, 3])
def test_run_in_threads_helper_error_raised(threads: int) -> None:
    """A block that a helper failed to fill would be released without noise."""
    failed = threading.Event()

    def work(_: int) -> None:
        if threading.current_thread() is threading.main_thread():
            failed.wait(20)
            return
        failed.set()
        raise MemoryError("of a helper")

    with pytest.raises(MemoryError, match="of a helper"):
        run_in_threads(work, [(n,) for n in range(threads)], threads)


FORKING = """
import os, threading
from oso_dp.privacy.thread_pool import run_in_threads

def meet():
    together = threading.Barrier(2, timeout=10)
    run_in_threads(lambda _: together.wait(), [(0,), (1,)], 2)

meet()
child = os.fork()
if child == 0:
    status = 1
    try:
        meet()
        status = 0
    finally:
        os._exit(status)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_run_in_threads_works_after_fork() -> None:
    """A forked process lacks its parent's threads, and must not wait for them.

    The test runs in a separate process, since others here may hold libraries that forbid forks.
    """
    assert subprocess.run([sys.executable, "-c", FORKING], timeout=100).returncode == 0
