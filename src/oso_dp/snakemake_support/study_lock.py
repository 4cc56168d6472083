"""Whoever leads a study's jobs on this machine holds a lock for as long as it wants them to run.

The system lets go of the lock however the leader ends. A job that was told of it (the environment
variable `LEADER`) sees that, keeps what it has, and ends: no job outlives its study.
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
_PATIENCE: Final = 1.0  # seconds: a job that looks for its leader holds the lock for a moment


class StudyLock:
    """One process's hold on the folder of a study."""

    def __init__(self, build: Path) -> None:
        self.path = (build / _LOCK).absolute()
        self._host = build / _HOST
        self._held: BaseFileLock | None = None

    def acquire(self) -> None:
        """OsoError if another process leads."""
        make_folder(self.path.parent)
        self._held = try_lock(self.path, _PATIENCE)
        if self._held is None:
            raise OsoError(
                f"{self.path.parent}: another snakemake is at work on this study; wait for it"
            )

    @property
    def last_host(self) -> str | None:
        """The machine on which the study was led last; None if that is not known."""
        return self._host.read_text() if self._host.exists() else None

    def note_host(self) -> None:
        if self.last_host != platform.node():
            with atomic_write(self._host) as file:
                file.write(platform.node().encode())

    def release_on_signal(self, *signals: signal.Signals) -> None:
        """Let go when one of these comes, and then do what was done before."""
        for number in signals:
            before = signal.getsignal(number)

            def handle(number: int, frame: FrameType | None, before: Any = before) -> None:
                self.release()
                if callable(before):
                    before(number, frame)

            signal.signal(number, handle)

    def release(self) -> None:
        """From now on jobs end as soon as they can."""
        if self._held is not None:
            self._held.release()
            self._held = None


def is_locked(path: Path) -> bool:
    """Whether somebody holds this lock."""
    if not path.exists():
        return False
    held = try_lock(path)
    if held is None:
        return True
    held.release()
    return False
