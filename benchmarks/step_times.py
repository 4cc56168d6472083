"""How much longer a step of Online takes than one of FixedThreshold: both in turns, on each net.

    make bench-step-time      # on a quiet machine: five minutes on 2 cores, results/step_times.csv

The report's claim on time (C8) rests on this. Seconds per step are the median of a turn; the ratio
of each pair of neighbouring turns is one observation, and the interval is Student's, of their
logarithms. What runs beside it hits both of a pair alike.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from math import exp, log, sqrt
from pathlib import Path

import torch
from child import CannotGoOnError, Child
from competitor import Setting
from csv_file import write_csv
from scipy.special import stdtrit
from workloads import WORKLOADS, Workload, make_data, save_data

from oso_dp.errors import OsoError
from oso_dp.output_paths import check_output, is_table
from oso_dp.training.provenance import commit, device_name

METHOD, RIVAL = "online", "fixed_threshold"
TURNS = 12
SECONDS = 3.0  # of one turn


def main(arguments: Sequence[str]) -> int:
    """Write the table to the file that is named; status 2 with one line if that fails."""
    try:
        if len(arguments) != 1:
            raise OsoError("usage: python benchmarks/step_times.py FILE")
        is_ours = is_table(["dataset", "model", "device"])
        check_output(Path(arguments[0]), "a table of step times", is_ours, option="FILE")
        threads = torch.get_num_threads()
        rows = [measure(workload, threads) for workload in WORKLOADS.values()]
        write_csv(Path(arguments[0]), rows)
    except (OsoError, CannotGoOnError) as error:
        print(f"bench: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(Path(arguments[0]).read_text(), end="")
    return 0


def measure(
    workload: Workload, threads: int, turns: int = TURNS, seconds: float = SECONDS
) -> dict[str, object]:
    """One row: the ratio on one network."""
    with tempfile.TemporaryDirectory(prefix="oso-bench-") as name:
        save_data(make_data(workload, workload.examples), Path(name))
        children = [
            Child(Setting(method, workload.model, threads=threads), Path(name))
            for method in (METHOD, RIVAL)
        ]
        try:
            medians: list[list[float]] = [[], []]
            for turn in range(turns):
                for at in (0, 1) if turn % 2 == 0 else (1, 0):  # alternate the order
                    before = len(children[at].seconds)
                    children[at].turn(seconds)
                    medians[at].append(statistics.median(children[at].seconds[before:]))
        finally:
            for child in children:
                child.close()
    ratio, low, high = interval([log(a / b) for a, b in zip(*medians, strict=True)])
    return {
        "dataset": workload.dataset,
        "model": workload.model,
        "device": device_name("cpu"),
        "precision": "float32",
        "method": METHOD,
        "rival": RIVAL,
        "turns": turns,
        "ratio": f"{ratio:.4f}",
        "low": f"{low:.4f}",
        "high": f"{high:.4f}",
        "torch_version": torch.__version__.partition("+")[0],
        "commit": commit() or "",
    }


def interval(logarithms: Sequence[float]) -> tuple[float, float, float]:
    """The mean of logarithms and its 95 % interval, as ratios."""
    mean, count = statistics.fmean(logarithms), len(logarithms)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(logarithms) / sqrt(count)
    return exp(mean), exp(mean - half), exp(mean + half)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
