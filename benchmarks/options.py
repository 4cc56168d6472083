"""The benchmark's command line; raises OsoError for an invalid value."""

import argparse
import math
import os
from pathlib import Path
from typing import Any, NoReturn

import torch
from competitors import competitor_names, find_competitor
from measure import Bench
from workloads import WORKLOADS, find_workload

from oso_dp.errors import OsoError
from oso_dp.gradients import find_precision
from oso_dp.training.provenance import device_name

REPO = Path(__file__).resolve().parents[1]
RESULTS, PARTS = REPO / "benchmarks" / "results", REPO / "build" / "benchmarks"
# What a bench must leave alone to count as the whole one.
_WHOLE: dict[str, Any] = {
    "models": list(WORKLOADS),
    "competitors": competitor_names(),
    "runs": [1, 8, 64],
    "precisions": ["float32", "bfloat16"],
    "batch_size": 512,
    "examples": None,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OsoError(message)


def parse(arguments: list[str], description: str) -> argparse.Namespace:
    """The options, with `output` filled in."""
    parser = _Parser(
        prog="python benchmarks",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(**_WHOLE)
    add = parser.add_argument
    add("--models", nargs="+", metavar="MODEL", help=", ".join(WORKLOADS))
    add("--competitors", nargs="+", metavar="NAME", help=", ".join(competitor_names()))
    add("--runs", nargs="+", type=int, metavar="R", help="runs of ours at once (default 1 8 64)")
    add("--precisions", nargs="+", metavar="NAME", help="of ours (default float32 bfloat16)")
    add("--seconds", type=float, default=3.0, help="of steps for each (default %(default)s)")
    add("--device", help="cpu or cuda (default: cuda if there is one)")
    add("--threads", type=int, help="of the CPU (default: all its cores)")
    add("--batch-size", type=int, help="examples in a batch (default 512)")
    add("--examples", type=int, help="in the training data (default: as many as the study's have)")
    add(
        "--output",
        type=Path,
        help="folder (default: benchmarks/results, or build/benchmarks if "
        "the bench is not the whole one)",
    )
    add("--read", type=Path, metavar="CSV", help="show these results instead of measuring")
    options = parser.parse_args(arguments)
    if options.output is None:
        whole = all(getattr(options, name) == value for name, value in _WHOLE.items())
        default = RESULTS if whole else PARTS
        options.output = options.read.parent if options.read else default
    return options


def bench_of(options: argparse.Namespace) -> Bench:
    """What the options ask for."""
    for model in options.models:
        find_workload(model)
    for name in options.competitors:
        find_competitor(name)
    for runs in options.runs:
        _at_least(1, "runs", runs)
    _at_least(2, "batch-size", options.batch_size)
    if options.examples is not None:
        _at_least(options.batch_size, "examples", options.examples)
    if not 0 < options.seconds < math.inf:
        raise OsoError(f"--seconds {options.seconds:g}; must be > 0 and finite")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = cores or 1
    if options.threads is not None:
        _at_least(1, "threads", options.threads)
        if options.threads > threads:
            raise OsoError(
                f"--threads {options.threads}; must be <= {threads}, the number of cores"
            )
        threads = options.threads
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise OsoError(f"--device {device!r}; must be cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise OsoError("--device cuda; PyTorch finds no CUDA device; use --device cpu")
    for precision in options.precisions:
        find_precision(precision, torch.device(device))
    torch.set_num_threads(threads)  # the device's name on a CPU says how many
    return Bench(
        models=list(dict.fromkeys(options.models)),
        competitors=list(dict.fromkeys(options.competitors)),
        runs=list(dict.fromkeys(options.runs)),
        seconds=options.seconds,
        device=device,
        device_name=device_name(device),
        threads=threads,
        batch_size=options.batch_size,
        precisions=list(dict.fromkeys(options.precisions)),
        examples=options.examples,
    )


def _at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise OsoError(f"--{name} {value}; must be >= {least}")
