"""The bench's results: one row per model, competitor and R; as CSV and as text."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from competitors import BASELINE, label
from csv_file import write_csv

from oso_dp.errors import OsoError
from oso_dp.files import format_os_error

MEASURED = "ok"


@dataclass
class Row:
    """Numbers are None where `status` is not ok. A run-step is one step of one run."""

    device: str
    threads: int
    model: str
    batch_size: int
    competitor: str
    runs: int  # R, trained at once
    precision: str  # of products
    status: str  # ok, skipped, not installed, failed
    seconds_per_run_step: float | None = None  # median over steps, divided by R
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    run_steps_per_second: float | None = None
    times_sgd: float | None = None  # seconds_per_run_step over plain SGD's
    peak_mib: float | None = None  # of all R runs, over what was held before
    times_sgd_peak: float | None = None
    evaluation_share: float | None = None  # of a run: every 50 steps, the whole test set
    timed_steps: int = 0
    version: str = ""
    reason: str = ""  # why there are no numbers


def add_ratios(rows: Sequence[Row]) -> None:
    """Fill in the ratios to plain SGD on the same model; None where it was not measured."""
    for row in rows:
        base = next(
            (b for b in rows if b.model == row.model and b.competitor == BASELINE and b.peak_mib),
            None,
        )
        if base is None or row.status != MEASURED:
            continue
        assert row.seconds_per_run_step is not None
        assert row.peak_mib is not None
        assert base.seconds_per_run_step is not None
        assert base.peak_mib is not None
        row.times_sgd = row.seconds_per_run_step / base.seconds_per_run_step
        row.times_sgd_peak = row.peak_mib / base.peak_mib


def write_rows(rows: Sequence[Row], path: Path) -> None:
    every = [asdict(row).items() for row in rows]
    write_csv(
        path, [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in one} for one in every]
    )


def read_rows(path: Path) -> list[Row]:
    """What `write_rows` wrote; OsoError names a file that is something else."""
    as_type: dict[object, Callable[[str], object]] = {
        str: str,
        int: int,
        float | None: lambda text: float(text) if text else None,
    }
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                Row(**{f.name: as_type[f.type](line[f.name]) for f in fields(Row)})
                for line in csv.DictReader(file)
            ]
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None
    except (KeyError, TypeError, ValueError):
        raise OsoError(f"{path}: not a table of benchmark results") from None


def text_table(rows: Sequence[Row]) -> str:
    """For people: milliseconds and mebibytes, each with its ratio to plain SGD."""
    head = ("model", "competitor", "ms", "x SGD", "steps/s", "MiB", "x SGD", "eval", "steps", "")
    lines = [head]
    for row in rows:
        numbers = ("",) * 7
        if row.status == MEASURED:
            assert row.seconds_per_run_step is not None
            numbers = (
                _number(1e3 * row.seconds_per_run_step),
                _number(row.times_sgd),
                _number(row.run_steps_per_second),
                _number(row.peak_mib),
                _number(row.times_sgd_peak),
                "" if row.evaluation_share is None else f"{row.evaluation_share:.1%}",
                str(row.timed_steps),
            )
        why = "" if row.status == MEASURED else f"{row.status}: {row.reason}"
        lines.append((row.model, label(row.competitor, row.runs, row.precision), *numbers, why))
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]], left: int = 2) -> str:
    """Columns: the first `left` and the last flush left, numbers flush right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left or (i == last and left < last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: float | None) -> str:
    """Three digits, never as a power of ten."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
