"""Out-of-memory backoff: halves a job's number of parallel runs after the kernel killed it.

A killed process cannot report the reason. So while a job trains, a note beside its checkpoints has
its number of parallel runs and the kernel's count of out-of-memory kills. If the next start finds
the note and a higher count, it halves the number. A job that was killed for another reason keeps
the number, and so can resume from its checkpoint.
"""

import json
import logging
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oso_dp.errors import is_out_of_memory
from oso_dp.files import atomic_write, parse_json

_NOTE = "at-once.json"
_log = logging.getLogger(__name__)


@contextmanager
def limit_parallel_runs(folder: Path, wanted: int) -> Iterator[int]:
    """Yield the number of parallel runs, at most `wanted`; the job trains inside of the block.

    It is half of that of an earlier start that ran out of memory.
    """
    note = folder / _NOTE
    runs = _allowed(note, wanted)
    kernel, killed = _count_oom_kills()
    _write(note, runs=runs, kernel=kernel, killed=killed)
    try:
        yield runs
    except BaseException as error:
        # Later kills do not concern this job, so the note has no count.
        _write(note, runs=runs // 2 if is_out_of_memory(error) else runs)
        raise
    note.unlink()


def _allowed(note: Path, wanted: int) -> int:
    try:
        earlier = parse_json(note.read_text())
        runs, kernel, killed = (earlier.get(name) for name in ("runs", "kernel", "killed"))
        if kernel is not None:
            now, kills = _count_oom_kills()
            runs //= 2 if kernel == now and kills > killed else 1
        allowed = max(1, min(operator.index(runs), wanted))
    except (OSError, ValueError, TypeError, AttributeError):  # not a valid note
        return wanted
    if runs < wanted:
        _log.warning(
            "%s: ran out of memory before; now %d of %d parallel runs%s",
            *(note.parent, allowed, wanted),
            "" if runs else "; run fewer processes at once",
        )
    return allowed


def _write(note: Path, **content: Any) -> None:
    with atomic_write(note) as file:
        file.write(json.dumps(content).encode())


def _count_oom_kills() -> tuple[str, int]:
    """The kernel's boot id, and its number of out-of-memory kills since boot."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:  # not Linux: out-of-memory kills cannot be detected
        return "", 0
    return kernel, sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
