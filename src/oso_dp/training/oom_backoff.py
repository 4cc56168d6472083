"""How many runs at once a job trains after the kernel killed it for want of memory.

A process that is killed so can say nothing. So a note lies beside its checkpoints while it trains:
how many runs it has at once, and how often this kernel had killed for memory when it began. If the
next start meets the note and the kernel has killed since, it takes half as many. A job that was
killed otherwise goes on with as many as before, and so from its checkpoint.
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
    """At most `wanted` runs at once for the job of this folder, which trains inside of the block.

    Half as many as an earlier start had that was killed for want of memory, or failed for it.
    """
    note = folder / _NOTE
    runs = _allowed(note, wanted)
    kernel, killed = _count_oom_kills()
    _write(note, runs=runs, kernel=kernel, killed=killed)
    try:
        yield runs
    except BaseException as error:
        # Whatever the kernel kills from now on, it is not this job.
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
    except (OSError, ValueError, TypeError, AttributeError):  # no note of ours: it limits nothing
        return wanted
    if runs < wanted:
        _log.warning(
            "%s: ended for want of memory before; now %d of %d runs at once%s",
            *(note.parent, allowed, wanted),
            "" if runs else ", and fewer processes beside it need less",
        )
    return allowed


def _write(note: Path, **content: Any) -> None:
    with atomic_write(note) as file:
        file.write(json.dumps(content).encode())


def _count_oom_kills() -> tuple[str, int]:
    """Which start of which kernel this is, and how often it has killed a process for memory."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:  # another system, where a kill for memory looks like any other
        return "", 0
    return kernel, sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
