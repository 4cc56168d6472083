"""One writer of a results store at a time, whichever study or command it works for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from oso_dp.errors import OsoError
from oso_dp.files import make_folder, reason

LOCK = ".lock"  # in the store; a kill lets go of it


@contextmanager
def only_writer(store: Path) -> Iterator[None]:
    """Hold the store (made if absent) inside of the block; wait for another writer, with a line."""
    make_folder(store)
    lock = FileLock(store / LOCK)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"{store}: another command writes to it; waiting", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise OsoError(f"{store / LOCK}: cannot be locked ({reason(error)})") from error
    try:
        yield
    finally:
        lock.release()
