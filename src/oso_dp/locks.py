"""Locks between processes, which the system releases when their process ends."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error, make_folder

LOCK = ".lock"  # file name in a locked folder, ending of the name beside a locked file


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock the folder (created if absent) in the block; wait for another writer, with a message.

    OsoError if it cannot be locked.
    """
    make_folder(folder)
    path = folder / LOCK
    held = try_lock(path)
    if held is None:
        print(f"{folder}: locked by another command; waiting", file=sys.stderr, flush=True)
        held = _lock(path, timeout=-1)
    try:
        yield
    finally:
        held.release()


@contextmanager
def only_one(path: Path, message: str) -> Iterator[None]:
    """Hold the lock (folder created if absent) in the block; OsoError(message) if it is held."""
    make_folder(path.parent)
    held = try_lock(path)
    if held is None:
        raise OsoError(message)
    try:
        yield
    finally:
        held.release()


def try_lock(path: Path, timeout: float = 0.0) -> BaseFileLock | None:
    """Acquire the lock; None if it is held by another process until the timeout (seconds)."""
    try:
        return _lock(path, timeout)
    except Timeout:
        return None


def _lock(path: Path, timeout: float) -> BaseFileLock:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:  # also an OSError
        raise
    except (OSError, NotImplementedError) as error:
        raise OsoError(f"{path}: cannot be locked ({format_os_error(error)})") from error
    return lock
