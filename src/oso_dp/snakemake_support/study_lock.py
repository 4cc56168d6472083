"""The study lock: held by the Snakemake process that runs a study's jobs on this machine.

The system releases the lock however that process ends. A job that knows the lock (environment
variable `LOCK_FILE`) polls it, saves a checkpoint and ends: no job outlives its study.
"""

import platform
import signal
from pathlib import Path
from types import FrameType
from typing import Any, Final

from filelock import BaseFileLock

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, make_folder
from oso_dp.locks import try_lock

LOCK_FILE: Final = "OSO_STUDY_LOCK"
_LOCK, _HOST = ".leader", ".leader-host"
_TIMEOUT: Final = 1.0  # seconds: a job that polls the lock holds it for a moment


class StudyLock:
    """A lock on the working folder of a study; one process holds it."""

    def __init__(self, build: Path) -> None:
        self.path = (build / _LOCK).absolute()
        self._host = build / _HOST
        self._held: BaseFileLock | None = None

    def acquire(self) -> None:
        """OsoError if another process holds the lock."""
        make_folder(self.path.parent)
        self._held = try_lock(self.path, _TIMEOUT)
        if self._held is None:
            raise OsoError(
                f"{self.path.parent}: another snakemake works on this study; wait for it"
            )

    @property
    def last_host(self) -> str | None:
        """The host that last held the lock; None if unknown."""
        return self._host.read_text() if self._host.exists() else None

    def note_host(self) -> None:
        if self.last_host != platform.node():
            with atomic_write(self._host) as file:
                file.write(platform.node().encode())

    def release_on_signal(self, *signals: signal.Signals) -> None:
        """Release the lock on one of these signals, then call the previous handler."""
        for number in signals:
            before = signal.getsignal(number)

            def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
                self.release()
                if callable(before):
                    before(number, frame)

            signal.signal(number, handle)

    def release(self) -> None:
        """Release the lock; the study's jobs then end as soon as they can."""
        if self._held is not None:
            self._held.release()
            self._held = None


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock."""
    if not path.exists():
        return False
    held = try_lock(path)
    if held is None:
        return True
    held.release()
    return False
