"""GPU reservation: parallel jobs of a user on a machine use one GPU each, or wait for one.

A cluster that assigns GPUs shows each job its own only, which is reserved at once. Jobs coordinate
by file locks, which the system releases however a process ends.
"""

import getpass
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock

from oso_dp.files import make_folder
from oso_dp.locks import try_lock

_VISIBLE = "CUDA_VISIBLE_DEVICES"


@contextmanager
def reserve_gpu(device: str) -> Iterator[None]:
    """For "cuda", make one GPU visible in the block that no other job of this user has reserved.

    Call it before CUDA is first used. Without GPUs in the output of nvidia-smi nothing happens.
    """
    names = visible_devices(_list_gpus(), os.environ.get(_VISIBLE)) if device == "cuda" else {}
    if not names:
        yield
        return
    folder = Path(tempfile.gettempdir()) / f"oso-{getpass.getuser()}"
    with acquire_first([*names.values()], folder) as index:
        os.environ[_VISIBLE] = [*names][index]
        yield


def visible_devices(uuids: Sequence[str], chosen: str | None) -> dict[str, str]:
    """Entries for CUDA_VISIBLE_DEVICES (`chosen` if it is set), each with the GPU's uuid."""
    if chosen is None:
        return {str(index): uuid for index, uuid in enumerate(uuids)}
    known = {str(index): uuid for index, uuid in enumerate(uuids)}
    return {name: known.get(name, name) for name in chosen.split(",") if name}


def _list_gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


@contextmanager
def acquire_first(names: Sequence[str], folder: Path, interval: float = 1.0) -> Iterator[int]:
    """Lock the first free name and yield its index; waits, with a message, while all are locked."""
    make_folder(folder)
    paths = [folder / f"gpu-{name}.lock" for name in names]
    has_reported = False
    while (lock := _acquire_first(paths)) is None:
        if not has_reported:
            print(f"waiting for one of {len(names)} GPUs", file=sys.stderr, flush=True)
            has_reported = True
        time.sleep(interval)
    index, held = lock
    try:
        yield index
    finally:
        held.release()


def _acquire_first(paths: Sequence[Path]) -> tuple[int, BaseFileLock] | None:
    for index, path in enumerate(paths):
        if (held := try_lock(path)) is not None:
            return index, held
    return None
