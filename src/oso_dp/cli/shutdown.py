"""When a training job ends before its end: a signal came, or the study that sent it has gone."""

import os
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from oso_dp.errors import InterruptedByUser
from oso_dp.signals import SignalRecorder
from oso_dp.snakemake_support.study_lock import LOCK_FILE, is_locked

_INTERVAL: Final = 1.0  # seconds between two looks for the study


class ShutdownMonitor:
    """Knows why a job is to end, once it is."""

    def __init__(self) -> None:
        leader = os.environ.get(LOCK_FILE)
        self.leader = Path(leader) if leader else None  # nobody's, where it was started by hand
        self.signals = SignalRecorder(signal.SIGINT, signal.SIGTERM)
        self.looked = time.monotonic()

    def poll(self, at: str) -> None:
        """To be called after each step (`at`); Interrupted says why it shall be the last."""
        why, now = self.signals.came, time.monotonic()
        if self.leader is not None and now - self.looked >= _INTERVAL:
            self.looked = now
            if not is_locked(self.leader):
                why = "the study that sent this job has ended"
        if why is not None:
            raise InterruptedByUser(f"{why}: stopped at {at}; the next start goes on from there")

    def handle_signals(self) -> AbstractContextManager[None]:
        """Inside of the block a signal waits for `look`; a second one acts at once."""
        return self.signals.defer()
