"""A thread pool for independent jobs that release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any


def run_in_threads(
    work: Callable[..., None], jobs: Sequence[tuple[Any, ...]], threads: int
) -> None:
    """Call `work` with each job's arguments; the calling thread is one of the threads.

    Each thread takes the next job when it is free, so that a slow thread delays at most one job.
    An error of any thread is raised.
    """
    pending = iter(jobs)  # each job goes to one thread only

    def run_pending() -> None:
        for job in pending:
            work(*job)

    count = min(threads, len(jobs)) - 1
    futures = [_pool(os.getpid(), count).submit(run_pending) for _ in range(count)]
    run_pending()
    for future in futures:
        if not future.cancel():  # cancelled if it has not started: no job is left for it
            future.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """A pool that is kept; a forked process has none of its parent's threads and gets another."""
    return ThreadPoolExecutor(threads, thread_name_prefix="oso-noise")
