"""One at a time: locks in a folder, which the system lets go of however their process ends."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error, make_folder

LOCK = ".lock"  # in the folder that has one writer


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder (made if absent) inside of the block; wait for another writer, with a line.

    OsoError if it cannot be locked.
    """
    make_folder(folder)
    path = folder / LOCK
    held = try_lock(path)
    if held is None:
        print(f"{folder}: another command writes to it; waiting", file=sys.stderr, flush=True)
        held = _lock(path, timeout=-1)
    try:
        yield
    finally:
        held.release()


@contextmanager
def only_one(folder: Path, otherwise: str) -> Iterator[None]:
    """Hold the folder (made if absent) inside of the block; OsoError(otherwise) if another does."""
    make_folder(folder)
    held = try_lock(folder / LOCK)
    if held is None:
        raise OsoError(otherwise)
    try:
        yield
    finally:
        held.release()


def try_lock(path: Path, patience: float = 0.0) -> BaseFileLock | None:
    """Hold this lock until its `release`; None if somebody else does for so long (seconds)."""
    try:
        return _lock(path, patience)
    except Timeout:
        return None


def _lock(path: Path, timeout: float) -> BaseFileLock:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:  # is an OSError, too
        raise
    except (OSError, NotImplementedError) as error:
        raise OsoError(f"{path}: cannot be locked ({format_os_error(error)})") from error
    return lock
