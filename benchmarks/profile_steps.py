"""Profile training steps: the share of time that the device waits, and a trace for each model.

    python benchmarks/profile_steps.py OUT [--device cuda] [--steps 20]

Writes OUT/profile.csv and OUT/traces.tar.gz, whose traces chrome://tracing and Perfetto read. The
device is busy while a kernel runs; on a CPU, while an operator does.
"""

import argparse
import csv
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from competitor import Setting
from competitors import find_competitor
from torch.profiler import ProfilerActivity, profile
from workloads import KNOWN, WORKLOADS, find_workload, make_data

RUNS = (1, 64)
_WARM_UP = 5  # steps
_EXAMPLES = 4096  # of the data
_COLUMNS = ("model", "competitor", "runs", "ms_per_step", "busy_share", "kernels_per_step")


def profile_model(model: str, runs: int, device: str, steps: int, trace: Path) -> dict[str, Any]:
    """Of Online: time of a step, without the profiler, and what the device does in it."""
    setting = Setting("online", model, runs=runs, device=device)
    competitor = find_competitor("online")(setting, make_data(find_workload(model), _EXAMPLES))
    for _ in range(_WARM_UP):
        competitor.step()
    competitor.finish()
    began = time.perf_counter()
    for _ in range(steps):
        competitor.step()
    competitor.finish()
    seconds = (time.perf_counter() - began) / steps
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device == "cuda" else []
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            competitor.step()
        competitor.finish()
    profiler.export_chrome_trace(str(trace))
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in profiler.events() or []
        if (event.device_type == torch.autograd.DeviceType.CUDA) == (device == "cuda")
        and event.time_range.end > event.time_range.start
    ]
    return {
        "model": model,
        "competitor": "online",
        "runs": runs,
        "ms_per_step": f"{1e3 * seconds:.4g}",
        # Of the steps without the profiler, which only slows the host.
        "busy_share": f"{min(1.0, merged_length(spans) / 1e6 / (steps * seconds)):.3f}",
        "kernels_per_step": len(spans) // steps,
    }


def merged_length(spans: Iterable[tuple[float, float]]) -> float:
    """The length of a union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--models", nargs="+", default=[*WORKLOADS], choices=[*KNOWN])
    parser.add_argument("--runs", nargs="+", type=int, default=RUNS)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        open(options.output / "profile.csv", "w", newline="", encoding="utf-8") as file,
        tarfile.open(options.output / "traces.tar.gz", "w:gz") as archive,
    ):
        table = csv.DictWriter(file, _COLUMNS)
        table.writeheader()
        for model in options.models:
            for runs in options.runs:
                trace = Path(folder) / f"{model}_{runs}.json"
                row = profile_model(model, runs, options.device, options.steps, trace)
                table.writerow(row)
                file.flush()
                print(*row.values(), sep=", ", flush=True)
                if runs == options.runs[0]:  # one trace for each model
                    archive.add(trace, trace.name)


if __name__ == "__main__":
    main()
