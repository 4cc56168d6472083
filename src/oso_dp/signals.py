"""Signal handling: deferred until a step is done, or raised at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from oso_dp.errors import SignalReceived


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """In the block, the first SIGINT or SIGTERM raises `SignalReceived`; later ones act as usual.

    Signals that are ignored or already handled are unchanged, as are all outside of the main
    thread.
    """
    defaults: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    here = threading.current_thread() is threading.main_thread()
    handled = [
        number for number in defaults if here and signal.getsignal(number) is defaults[number]
    ]

    def end(number: int, frame: FrameType | None) -> None:
        restore()
        raise SignalReceived(signal.Signals(number).name)

    def restore() -> None:
        for number in handled:
            signal.signal(number, defaults[number])

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()


class SignalRecorder:
    """`came` is the name of the first signal in the block, None if there was none."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.came: str | None = None

    @contextmanager
    def defer(self) -> Iterator[None]:
        """In the block, record the first signal; a second one acts at once.

        Ignored signals stay ignored, such as Ctrl-C in a shell script's background processes. Has
        no effect outside of the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = [n for n in self.numbers if signal.getsignal(n) not in (signal.SIG_IGN, None)]
        before = {number: signal.signal(number, self._record) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.came = signal.Signals(number).name
        signal.signal(number, signal.default_int_handler)
