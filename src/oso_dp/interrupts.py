"""Signals that wait until a step is done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """`came` is the name of the first signal that came inside of the block."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.came: str | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A second signal acts at once. In a thread that gets no signals nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in self.numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)
