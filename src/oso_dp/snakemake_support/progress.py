"""How far a study's training is, over all of its jobs, as one line now and then."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_REPORTED = re.compile(r"run (\d+) of (\d+), step (\d+) of (\d+)")  # by oso_dp.cli.progress
_PART = "runs.parquet"  # comes last
_TAIL = 400  # bytes of a log that hold its last line


# A file as it is at one time. Two are held against each other, not against a clock, which may jump.
Version = tuple[str, int, int, int]


def version(path: Path) -> Version | None:
    """Another one whenever the file was written; None where it is not there."""
    try:
        known = path.stat()
    except OSError:
        return None
    return str(path), known.st_ino, known.st_size, known.st_mtime_ns


@dataclass(frozen=True)
class Job:
    """A training job: its hours by the configuration, where it writes, and its log.

    earlier: versions of files that an earlier job left, and that do not count.
    """

    hours: float
    part: Path
    log: Path
    earlier: frozenset[Version] = frozenset()

    @classmethod
    def pending(cls, hours: float, part: Path, log: Path) -> Self:
        """One that is still to begin: whatever lies there now is an earlier job's."""
        there = (version(part / _PART), version(log))
        return cls(hours, part, log, frozenset(one for one in there if one is not None))

    def fraction_done(self) -> float:
        """Of its work that is done: 1 if its part is there, else as its log says."""
        if self._is_new(self.part / _PART):
            return 1.0
        reported = _REPORTED.findall(_end_of(self.log)) if self._is_new(self.log) else []
        if not reported:
            return 0.0
        run, runs, step, steps = map(int, reported[-1])
        return min(1.0, (run - 1 + step / steps) / runs)

    def _is_new(self, path: Path) -> bool:
        now = version(path)
        return now is not None and now not in self.earlier


class ProgressReporter:
    """Says every `interval` seconds how far the jobs are, from a thread that ends with the process.

    Hours left are at the speed since the watch began, however many jobs run beside each other.
    """

    def __init__(
        self,
        name: str,
        jobs: Iterable[Job],
        say: Callable[[str], None],
        interval: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.jobs, self.say, self.clock = name, list(jobs), say, clock
        self.interval = interval
        self.began, self.first = clock(), _hours_done(self.jobs)
        self.last = ""

    def start(self) -> None:
        threading.Thread(target=self._go_on, daemon=True).start()

    def poll(self) -> None:
        """Say the line if it is another one than before."""
        line = self.line()
        if line != self.last:
            self.say(line)
        self.last = line

    def line(self) -> str:
        whole, done = sum(job.hours for job in self.jobs), _hours_done(self.jobs)
        text = f"{self.name}: {100 * done / whole if whole else 100:.1f} % of the training done"
        passed = (self.clock() - self.began) / 3600
        if done >= whole or done <= self.first or passed <= 0:
            return text
        left = passed * (whole - done) / (done - self.first)
        return (
            f"{text}, about {left:,.1f} hours left"
            if left >= 1
            else (f"{text}, about {math.ceil(60 * left)} minutes left")
        )

    def _go_on(self) -> None:
        while True:
            time.sleep(self.interval)
            self.poll()


def _hours_done(jobs: Sequence[Job]) -> float:
    return sum(job.hours * job.fraction_done() for job in jobs)


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
