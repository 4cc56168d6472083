"""Time and memory of a training step, ours and others', side by side on one device.

    make bench                                             # the whole, 17 minutes on 2 cores
    python benchmarks --models cnn --competitors sgd online --runs 1 --seconds 10
    python benchmarks --read benchmarks/results/cpu.csv    # table, estimate and figure once more

Writes <device>.csv, <device>.txt (what it shows) and <device>.png into the output folder.
benchmarks/README.md explains what is compared, and the columns.
"""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from estimate import text_estimate
from measure import measure
from options import bench_of, parse
from rows import Row, add_ratios, read_rows, text_table, write_rows

from oso_dp.errors import OsoError
from oso_dp.files import atomic_write, make_folder
from oso_dp.openmp import spin_briefly


def main(arguments: list[str]) -> int:
    """Status 0; 2 with one line on standard error for a user's mistake."""
    spin_briefly()  # every competitor alike
    try:
        options = parse(arguments, __doc__ or "")
        if options.read:
            rows, name = read_rows(options.read), options.read.stem
        else:
            bench = bench_of(options)
            make_folder(options.output)  # before minutes of work
            began = time.monotonic()
            rows = [row for model in bench.models for row in measure(bench, model, _say)]
            add_ratios(rows)
            _say(f"measured in {time.monotonic() - began:.0f} s")
            name = "cpu" if bench.device == "cpu" else _slug(bench.device_name)
            write_rows(rows, options.output / f"{name}.csv")
        _show(rows, options.output / name)
    except OsoError as error:
        print(f"bench: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _show(rows: Sequence[Row], stem: Path) -> None:
    """Print and keep the table and the estimate; draw, where there is something to draw with."""
    head = f"Training steps of one batch of {rows[0].batch_size} on {rows[0].device}"
    text = f"{head}\n\n{text_table(rows)}\n"
    try:
        text += f"\n{text_estimate(rows)}\n"
    except ModuleNotFoundError as error:
        _say(f"no estimate: {error.name} is not installed (make it elsewhere with --read)")
    print(text)
    with atomic_write(stem.with_suffix(".txt")) as file:
        file.write(text.encode())
    try:
        from figure import draw
    except ModuleNotFoundError as error:
        _say(f"no figure: {error.name} is not installed (draw it elsewhere with --read)")
        return
    with atomic_write(stem.with_suffix(".png")) as file:
        file.write(draw(rows))
    _say(f"written: {stem}.csv, .txt, .png")
