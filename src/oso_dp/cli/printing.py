"""Tables and progress on standard output."""

import sys
import time
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

_MAX_WIDTH = 200  # columns where no terminal sets a limit


def print_table(headings: Iterable[str], rows: Iterable[Iterable[object]], left: int = 1) -> None:
    """Print rows of cells; the first `left` columns are text, the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        justify = "left" if position < left else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    console().print(table)


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _MAX_WIDTH)


def _text(cell: object) -> str:
    if cell is None or cell != cell:  # NaN
        return ""
    return f"{cell:.5g}" if isinstance(cell, float) else str(cell)


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
