"""Pausing and stopping a campaign, from outside: `python -m oso_dp.campaign.control pause FOLDER`.

Whoever trains holds a shared lock on `.progress/at-work`, and looks after each step for two files:
while `pause` is there it lets go and waits, and where `stop` is there it ends. So the command can
tell when the last one has heard: then it gets the lock for itself. A kill lets go of it, too.
"""

import fcntl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from oso_dp.errors import Interrupted, OsoError
from oso_dp.exits import ended
from oso_dp.files import make_folder, reason

ACTIONS: Final = ("pause", "resume", "stop")
_LOOK = 0.2  # seconds between two looks while paused


class StoppedError(Interrupted):
    """Somebody wants this campaign to end."""


class Control:
    """One worker's end of it. `clock` leaves out the time of pauses."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """folder: the campaign's `.progress`."""
        self._pause, self._stop = folder / "pause", folder / "stop"
        self._clock, self._sleep = clock, sleep
        self._paused = 0.0
        self._lock = folder / "at-work"
        self._at_work: BinaryIO | None = None

    def clock(self) -> float:
        """Seconds in which this worker was not paused."""
        return self._clock() - self._paused

    def look(self) -> None:
        """To be called after each step: waits while paused; StoppedError if it is to end."""
        if self._pause.exists():
            began = self._clock()
            with self._let_go():
                while self._pause.exists() and not self._stop.exists():
                    self._sleep(_LOOK)
            self._paused += self._clock() - began
        if self._stop.exists():
            raise StoppedError

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside of the block this process trains, and commands wait until it has heard them."""
        with open(self._lock, "ab") as self._at_work:
            fcntl.flock(self._at_work, fcntl.LOCK_SH)
            yield
        self._at_work = None

    @contextmanager
    def _let_go(self) -> Iterator[None]:
        if self._at_work is not None:
            fcntl.flock(self._at_work, fcntl.LOCK_UN)
        yield
        if self._at_work is not None:
            fcntl.flock(self._at_work, fcntl.LOCK_SH)


def act(action: str, results: Path) -> str:
    """Pause, resume or stop all that work on this campaign's folder; what came of it.

    `pause` and `stop` return once the last worker has heard. OsoError for a folder that is none.
    """
    folder = results / ".progress"
    if not folder.is_dir():
        raise OsoError(f"{results}: not the folder of a campaign; name what --results says")
    if action == "resume":
        paused = (folder / "pause").exists()
        (folder / "pause").unlink(missing_ok=True)
        return "goes on" if paused else "was not paused"
    try:
        (folder / action).touch()
        with open(folder / "at-work", "ab") as at_work:
            fcntl.flock(at_work, fcntl.LOCK_EX)
    except OSError as error:
        raise OsoError(f"{folder}: cannot {action} ({reason(error)})") from error
    if action == "stop":
        clear(results)
        return "stopped: nobody is at work"
    return "paused: nobody is at work"


def clear(results: Path) -> None:
    """Forget earlier commands: a campaign begins."""
    folder = results / ".progress"
    make_folder(folder)
    for name in ("pause", "stop"):
        (folder / name).unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """The exit status (`oso_dp.exits`)."""

    def control() -> None:
        if len(arguments) != 2 or arguments[0] not in ACTIONS or not arguments[1].strip():
            raise OsoError(f"usage: python -m oso_dp.campaign.control {'|'.join(ACTIONS)} FOLDER")
        print(f"{arguments[1]}: {act(arguments[0], Path(arguments[1]))}")

    return ended(control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
