"""Several processes at work on one campaign's folder, and one line a minute about all of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from oso_dp.campaign.campaign import Campaign
from oso_dp.errors import OsoError
from oso_dp.exits import error_line
from oso_dp.training.provenance import device_name

EVERY = 60.0  # seconds between two lines
PATIENCE = 10.0  # seconds for a worker to end


class Minutes:
    """To be called often: says every minute what was done and what is left."""

    def __init__(
        self, campaign: Campaign, processes: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.campaign, self.processes, self.clock = campaign, processes, clock
        self.before = campaign.parts.trained
        self.next = clock() + EVERY

    def __call__(self) -> None:
        if self.clock() >= self.next:
            self.next = self.clock() + EVERY
            self.campaign.say(self.line())

    @property
    def runs(self) -> int:
        """That came since the campaign began."""
        return self.campaign.parts.trained - self.before

    def line(self) -> str:
        """The runs done since the beginning, those left, and their hours at the measured speed."""
        campaign = self.campaign
        campaign.parts.look()
        campaign.measure()
        left = sum(runs for _, runs in campaign.left)
        speed = "measured" if campaign.speed.known else "planned"
        return (
            f"{self.runs:,} runs done; {left:,} left, about "
            f"{campaign.hours_left / self.processes:,.1f} hours at the {speed} speed"
        )


def lead(arguments: Sequence[str], campaign: Campaign, processes: int) -> None:
    """Start the workers, speak for them, and end with the last.

    arguments: the command's own; a worker's lines go to `.progress/worker-<n>.log`. OsoError if a
    worker ends with an error: then all end, and what is complete is kept.
    """
    minutes = Minutes(campaign, processes)
    signal.signal(signal.SIGTERM, _leave)
    workers = []
    try:
        for number in range(processes):
            workers.append(_start(arguments, number, campaign.parts.progress))
        while any(worker.poll() is None for worker in workers):
            _refuse_failed(workers, campaign.parts.progress)
            minutes()
            time.sleep(0.5)
        _refuse_failed(workers, campaign.parts.progress)
    finally:
        _end(workers)
    campaign.say(f"{device_name(campaign.device)} x {processes}: {minutes.line()}")


def _log(progress: Path, number: int) -> Path:
    return progress / f"worker-{number}.log"


def _start(arguments: Sequence[str], number: int, progress: Path) -> subprocess.Popen[bytes]:
    with open(_log(progress, number), "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "oso_dp.campaign", *arguments, "--worker"],
            stdout=log,
            stderr=log,
            # A session of its own: a signal from the terminal reaches the leader only, and Linux
            # can let all of it give way.
            start_new_session=True,
        )


def give_way(nice: int) -> None:
    """Lower the priority of this process, and of its session.

    Linux shares the processors among sessions first (autogroups), so that `nice` alone would give
    way to what was started from the same terminal, and to nothing else.
    """
    os.nice(nice)
    with suppress(OSError):  # elsewhere there is nothing of the kind
        Path("/proc/self/autogroup").write_text(str(nice))


def _refuse_failed(workers: Sequence[subprocess.Popen[bytes]], progress: Path) -> None:
    for number, worker in enumerate(workers):
        if worker.poll():
            lines = _log(progress, number).read_text(errors="replace").splitlines() or ["nothing"]
            said = lines[-1].removeprefix(error_line(""))
            raise OsoError(f"process {number} ended with status {worker.poll()}: {said}")


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
