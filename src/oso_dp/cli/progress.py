"""Progress of a training job, as lines of a log."""

import sys
import time


class Progress:
    """Callback of each step; prints the progress every `interval` seconds."""

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
