"""A GPU of one's own: jobs side by side on a machine with several take one each, and wait for one.

A scheduler that gives each job its GPU shows it that one alone, which is then taken at once. Jobs
know of each other by locks that the system releases when their process ends, however it ends. Here
and not in `training`, since it decides no number: the job sees one GPU, the first.
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
    """For "cuda": only a GPU that no other job of this user has is visible in the block.

    Before CUDA is first used. Nothing happens where NVIDIA's tool names no GPU.
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
    """What CUDA_VISIBLE_DEVICES may say, as `chosen` does if it is set, and the GPU's uuid each."""
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
    """The index of a name that nobody else holds; waits, and says so, while all are taken."""
    make_folder(folder)
    paths = [folder / f"gpu-{name}.lock" for name in names]
    has_reported = False
    while (taken := _acquire_first(paths)) is None:
        if not has_reported:
            print(f"waiting for one of {len(names)} GPUs", file=sys.stderr, flush=True)
            has_reported = True
        time.sleep(interval)
    index, held = taken
    try:
        yield index
    finally:
        held.release()


def _acquire_first(paths: Sequence[Path]) -> tuple[int, BaseFileLock] | None:
    for index, path in enumerate(paths):
        if (held := try_lock(path)) is not None:
            return index, held
    return None
