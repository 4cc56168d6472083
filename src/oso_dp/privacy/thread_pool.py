"""Sharing independent jobs among threads, for work that lets other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any


def run_in_threads(
    work: Callable[..., None], jobs: Sequence[tuple[Any, ...]], threads: int
) -> None:
    """Call `work` with each job's arguments; the caller is one of the threads.

    Each takes the next job when it is free, so that one that is held up delays the rest by a job.
    An error of any thread is raised.
    """
    waiting = iter(jobs)  # hands each job to one thread only

    def go_on() -> None:
        for job in waiting:
            work(*job)

    helpers = min(threads, len(jobs)) - 1
    started = [_pool(os.getpid(), helpers).submit(go_on) for _ in range(helpers)]
    go_on()
    for helper in started:
        if not helper.cancel():  # not even begun: there is nothing left for it
            helper.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that are kept; a forked process has none of its parent's, and gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="oso-noise")
