"""When a training job ends before its end: a signal came, or the study that sent it has gone."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from oso_dp.errors import Interrupted
from oso_dp.study.leader import LEADER, is_led

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERVAL: Final = 1.0  # seconds between two looks for the study


class Leave:
    """Knows why a job is to end, once it is."""

    def __init__(self) -> None:
        leader = os.environ.get(LEADER)
        self.leader = Path(leader) if leader else None  # nobody's, where it was started by hand
        self.why: str | None = None
        self.looked = time.monotonic()

    def look(self, at: str) -> None:
        """To be called after each step (`at`); Interrupted says why it shall be the last."""
        now = time.monotonic()
        if self.leader is not None and now - self.looked >= _INTERVAL:
            self.looked = now
            if not is_led(self.leader):
                self.why = "the study that sent this job has ended"
        if self.why is not None:
            raise Interrupted(f"{self.why}: stopped at {at}; the next start goes on from there")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Inside of the block a signal waits for `look`; a second one acts at once."""
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.why = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)
