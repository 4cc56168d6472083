"""Early shutdown of a training job: on a signal, or when the study that started it has ended."""

import os
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from oso_dp.errors import InterruptedByUser
from oso_dp.signals import SignalRecorder
from oso_dp.snakemake_support.study_lock import LOCK_FILE, is_locked

_POLL_SECONDS: Final = 1.0  # between two checks of the study lock


class ShutdownMonitor:
    """Raises InterruptedByUser once a job should end."""

    def __init__(self) -> None:
        lock = os.environ.get(LOCK_FILE)
        self.study_lock = Path(lock) if lock else None  # None for a job that no study started
        self.signals = SignalRecorder(signal.SIGINT, signal.SIGTERM)
        self.polled_at = time.monotonic()

    def poll(self, at: str) -> None:
        """Call after each step, which `at` names; InterruptedByUser gives the reason to stop."""
        why, now = self.signals.came, time.monotonic()
        if self.study_lock is not None and now - self.polled_at >= _POLL_SECONDS:
            self.polled_at = now
            if not is_locked(self.study_lock):
                why = "the study that started this job has ended"
        if why is not None:
            raise InterruptedByUser(f"{why}: stopped at {at}; the next start resumes there")

    def handle_signals(self) -> AbstractContextManager[None]:
        """In the block a signal is deferred to `poll`; a second one acts at once."""
        return self.signals.defer()
