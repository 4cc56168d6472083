"""Signals: those that wait until a step is done, and those that end a command at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from oso_dp.errors import SignalReceived


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Inside of the block SIGINT and SIGTERM raise `SignalCame`, once; a second one acts as ever.

    One that somebody ignores or handles already stays as it is, as does all in a thread that gets
    no signals.
    """
    usual: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    here = threading.current_thread() is threading.main_thread()
    handled = [number for number in usual if here and signal.getsignal(number) is usual[number]]

    def end(number: int, frame: FrameType | None) -> None:
        restore()
        raise SignalReceived(signal.Signals(number).name)

    def restore() -> None:
        for number in handled:
            signal.signal(number, usual[number])

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()


class SignalRecorder:
    """`came` is the name of the first signal that came inside of the block."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.came: str | None = None

    @contextmanager
    def defer(self) -> Iterator[None]:
        """A second signal acts at once. In a thread that gets no signals nothing changes.

        One that somebody ignores stays ignored, as Ctrl-C does by a shell's script of what it
        starts in the background.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = [one for one in self.numbers if signal.getsignal(one) not in (signal.SIG_IGN, None)]
        before = {number: signal.signal(number, self._note) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)
