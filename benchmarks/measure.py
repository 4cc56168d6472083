"""The measurement: all competitors of a model are alive and take turns."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from child import CannotGoOnError, Child
from competitor import Setting
from competitors import is_ours, label, precision_of
from rows import MEASURED, Row
from workloads import find_workload, make_data, save_data

ROUNDS = 8  # noise lasts seconds: it then hits all alike
EVALUATE_EVERY = 50  # steps, in the study
LEAST_STEPS = 3  # timed, however long they take


@dataclass(frozen=True)
class Bench:
    """What is measured, and for how long."""

    models: Sequence[str]
    competitors: Sequence[str]
    runs: Sequence[int]  # of ours; the peers train one at a time
    seconds: float  # of steps, per competitor, R and model
    device: str
    device_name: str
    threads: int
    batch_size: int = 512
    precisions: Sequence[str] = ("float32",)  # of ours
    examples: int | None = None  # of the data; None: as many as the data set has

    def settings(self, model: str) -> list[Setting]:
        """Every competitor with R = 1 first: its time tells what larger R would take."""
        every = [(name, runs) for runs in sorted(self.runs) for name in self.competitors]
        wanted = [(name, 1) for name in self.competitors if not is_ours(name)]
        shared = {"model": model, "device": self.device, "threads": self.threads}
        shared["batch_size"] = self.batch_size
        peers = [Setting(name, precision=precision_of(name), **shared) for name, _ in wanted]
        return peers + [
            Setting(name, runs=runs, precision=precision, **shared)
            for precision in self.precisions
            for name, runs in every
            if is_ours(name)
        ]


def measure(bench: Bench, model: str, say: Callable[[str], None]) -> list[Row]:
    """The rows of one model. `say` is told what is going on."""
    workload = find_workload(model)
    rows: list[Row] = []
    children: list[tuple[Child, Row]] = []
    with tempfile.TemporaryDirectory(prefix="oso-bench-") as name:
        folder = Path(name)
        save_data(make_data(workload, bench.examples or workload.examples), folder)
        try:
            for setting in bench.settings(model):
                row = _empty_row(bench, setting)
                rows.append(row)
                with _excused(row, say):
                    _refuse(bench, setting, rows[:-1], [child for child, _ in children])
                    child = Child(setting, folder)
                    children.append((child, row))
                    say(f"{_name(row)}: about {1e3 * child.first_seconds:.3g} ms a step")
            _take_turns(bench, children, say)
            for child, row in children:
                if row.status == MEASURED:
                    with _excused(row, say):
                        _fill_in(row, child)
        finally:
            for child, _ in children:
                child.close()
    return rows


@contextmanager
def _excused(row: Row, say: Callable[[str], None]) -> Iterator[None]:
    """A competitor that cannot go on is a row, and no failure of the bench."""
    try:
        yield
    except CannotGoOnError as error:
        row.status, row.reason = error.status, str(error)
        say(f"{_name(row)}: {error.status}: {error}")


def _refuse(bench: Bench, setting: Setting, rows: Sequence[Row], others: Sequence[Child]) -> None:
    """Skip what failed with fewer runs, and on a CPU what has no time for a single step.

    There, R runs take about R times as long as one.
    """
    for row in rows:
        same = (row.competitor, row.precision) == (setting.competitor, setting.precision)
        if same and row.status != MEASURED:
            raise CannotGoOnError(row.status, row.reason)
    if bench.device != "cpu":
        return
    for other in others:
        mine = other.setting.competitor, other.setting.precision
        if mine != (setting.competitor, setting.precision):
            continue
        seconds = other.first_seconds * setting.runs / other.setting.runs
        if seconds > bench.seconds:
            raise CannotGoOnError(
                "skipped",
                f"a step would take about {seconds:.1f} s, above --seconds {bench.seconds:g}",
            )


def _take_turns(
    bench: Bench, children: Sequence[tuple[Child, Row]], say: Callable[[str], None]
) -> None:
    """Each takes a turn per round, or in fewer rounds if a step is longer than its turn."""
    for number in range(ROUNDS):
        forth = number % 2 == 0  # alternate the order
        for child, row in children if forth else reversed(children):
            if row.status == MEASURED and child.used <= bench.seconds * number / ROUNDS:
                with _excused(row, say):
                    child.turn(bench.seconds / ROUNDS)
    for child, row in children:
        while row.status == MEASURED and len(child.seconds) < LEAST_STEPS:
            with _excused(row, say):
                child.turn(0)


def _empty_row(bench: Bench, setting: Setting) -> Row:
    return Row(
        bench.device_name,
        bench.threads,
        setting.model,
        setting.batch_size,
        setting.competitor,
        setting.runs,
        setting.precision,
        MEASURED,
    )


def _fill_in(row: Row, child: Child) -> None:
    each = [seconds / row.runs for seconds in child.seconds]
    low, middle, high = statistics.quantiles(each, n=4, method="inclusive")
    row.peak_mib = child.end() / 2**20
    if is_ours(row.competitor):  # after the peak: it is a step's
        evaluation = child.evaluate() / row.runs
        row.evaluation_share = evaluation / (evaluation + EVALUATE_EVERY * middle)
    row.seconds_per_run_step, row.lower_quartile, row.upper_quartile = middle, low, high
    row.run_steps_per_second = 1 / middle
    row.timed_steps = len(each)
    row.version = child.version


def _name(row: Row) -> str:
    return f"{row.model}: {label(row.competitor, row.runs, row.precision)}"
