"""Progress of a training job, as lines that survive in a log."""

import sys
import time


class Progress:
    """Called at each step; says every `interval` seconds how far the job is."""

    def __init__(self, label: str, runs: int, steps: int, interval: float = 10.0) -> None:
        self.label, self.runs, self.steps, self.interval = label, runs, steps, interval
        self.began = self.reported_at = time.monotonic()

    def __call__(self, done: int, step: int) -> None:
        now = time.monotonic()
        if now - self.reported_at < self.interval:
            return
        self.reported_at = now
        print(
            f"{self.label}: run {done + 1} of {self.runs}, step {step} of {self.steps}, "
            f"{now - self.began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
