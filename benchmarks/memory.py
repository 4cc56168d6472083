"""Peak memory of a process, or on its GPU, since a moment of one's choice.

On a CPU it is the resident set. Linux keeps its high-water mark and lets a process lower that to
what it holds now. Elsewhere the mark only rises, so that a peak below an earlier one reads as zero.
"""

import ctypes
import resource
import sys
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def held_bytes(device: str) -> int:
    """What is held now; from here on `peak_bytes` counts anew."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    _give_back_freed()
    if _CLEAR.exists():
        _CLEAR.write_text("5")
    return peak_bytes(device)


def peak_bytes(device: str) -> int:
    """The most that was held since `held_bytes`."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if _STATUS.exists():  # not ru_maxrss, which starts at the size of the process that started this
        lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _give_back_freed() -> None:
    """Return freed memory to the system, or a competitor could use it without being seen to."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return  # not glibc
