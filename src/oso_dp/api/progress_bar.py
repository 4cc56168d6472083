"""Progress of a training on standard error: a bar on a terminal, otherwise a line per interval."""

import sys
import time

_WIDTH = 30  # characters
_ON_TERMINAL, _IN_LOG = 0.2, 10.0  # seconds between two updates


class ProgressBar:
    """Called after each step, on standard error."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.terminal = sys.stderr.isatty()
        self.began = self.reported_at = time.monotonic()

    def __call__(self, step: int) -> None:
        now = time.monotonic()
        if (
            now - self.reported_at < (_ON_TERMINAL if self.terminal else _IN_LOG)
            and step < self.steps
        ):
            return
        self.reported_at = now
        text = f"step {step} of {self.steps}, {now - self.began:.0f} s"
        if self.terminal:
            done = "#" * (_WIDTH * step // self.steps)
            print(f"\r[{done:<{_WIDTH}}] {text}", end="", file=sys.stderr, flush=True)
        elif now - self.began >= _IN_LOG:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.terminal:
            print(file=sys.stderr)
