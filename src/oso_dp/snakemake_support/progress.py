"""Progress of a study's training over all of its jobs, as one line per interval."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from oso_dp.files import FileVersion, file_version

_REPORTED = re.compile(r"run (\d+) of (\d+), step (\d+) of (\d+)")  # by oso_dp.cli.printing
_TABLE = "runs.parquet"  # written last
_TAIL = 400  # bytes of a log that hold its last line


@dataclass(frozen=True)
class Job:
    """A training job: its estimated hours, its output folder and its log.

    earlier: versions of files that an earlier job left; they are ignored.
    """

    hours: float
    output: Path
    log: Path
    earlier: frozenset[FileVersion] = frozenset()

    @classmethod
    def pending(cls, hours: float, output: Path, log: Path) -> Self:
        """A job that has not started: files that exist now are from an earlier job."""
        files = (file_version(output / _TABLE), file_version(log))
        return cls(hours, output, log, frozenset(file for file in files if file is not None))

    def fraction_done(self) -> float:
        """Fraction of its work that is done: 1 if its output exists, else from its log."""
        if self._is_new(self.output / _TABLE):
            return 1.0
        reported = _REPORTED.findall(_end_of(self.log)) if self._is_new(self.log) else []
        if not reported:
            return 0.0
        run, runs, step, steps = map(int, reported[-1])
        return min(1.0, (run - 1 + step / steps) / runs)

    def _is_new(self, path: Path) -> bool:
        now = file_version(path)
        return now is not None and now not in self.earlier


class ProgressReporter:
    """Reports the progress of the jobs every `interval` seconds, from a daemon thread.

    Hours left are extrapolated from the speed since the reporter was made, over all parallel jobs.
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
        threading.Thread(target=self._poll_forever, daemon=True).start()

    def poll(self) -> None:
        """Report the line if it has changed."""
        line = self.line()
        if line != self.last:
            self.say(line)
        self.last = line

    def line(self) -> str:
        total, done = sum(job.hours for job in self.jobs), _hours_done(self.jobs)
        text = f"{self.name}: {100 * done / total if total else 100:.1f} % of the training done"
        passed = (self.clock() - self.began) / 3600
        if done >= total or done <= self.first or passed <= 0:
            return text
        left = passed * (total - done) / (done - self.first)
        return (
            f"{text}, about {left:,.1f} hours left"
            if left >= 1
            else (f"{text}, about {math.ceil(60 * left)} minutes left")
        )

    def _poll_forever(self) -> None:
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
