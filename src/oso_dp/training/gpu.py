"""A GPU of one's own: jobs side by side on a machine with several take one each, and wait for one.

A scheduler that gives each job its GPU shows it that one alone, which is then taken at once. Jobs
know of each other by locks that the system releases when their process ends, however it ends.
"""

import getpass
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from oso_dp.errors import OsoError
from oso_dp.files import make_folder


@contextmanager
def own_gpu(device: str) -> Iterator[str]:
    """`cuda:i` of a visible GPU that no other job of this user has, for "cuda"; else `device`.

    OsoError where no GPU is visible.
    """
    if device != "cuda":
        yield device
        return
    if not torch.cuda.is_available():
        raise OsoError("device cuda: no CUDA device is visible here; allowed is cpu")
    count = torch.cuda.device_count()
    names = [str(torch.cuda.get_device_properties(index).uuid) for index in range(count)]
    with first_free(names, Path(tempfile.gettempdir()) / f"oso-{getpass.getuser()}") as index:
        torch.cuda.set_device(index)
        yield f"cuda:{index}"


@contextmanager
def first_free(names: Sequence[str], folder: Path, interval: float = 1.0) -> Iterator[int]:
    """The index of a name that nobody else holds; waits, and says so, while all are taken."""
    make_folder(folder)
    locks = [FileLock(folder / f"gpu-{name}.lock") for name in names]
    said = False
    while (index := next((i for i, lock in enumerate(locks) if _taken(lock)), None)) is None:
        if not said:
            print(f"waiting for one of {len(names)} GPUs", file=sys.stderr, flush=True)
            said = True
        time.sleep(interval)
    try:
        yield index
    finally:
        locks[index].release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
