"""What the whole study would take: its steps, each at the measured time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from competitors import PEERS, is_ours
from rows import MEASURED, Row, aligned
from workloads import WORKLOADS

_CONFIG = Path(__file__).parents[1] / "config" / "paper.yaml"


@dataclass(frozen=True)
class Load:
    """All private runs of one method on one data set."""

    model: str
    method: str
    runs: int
    steps: int  # of all runs together


@cache
def private_loads() -> tuple[Load, ...]:
    """The paper's study: every grid, budget and seed of the private methods, as configured."""
    from oso_dp.study.config import load_config  # needs packages that a GPU machine may lack
    from oso_dp.study.expand import make_cohorts

    config = load_config(_CONFIG)
    every = make_cohorts(config)
    loads = []
    for workload in WORKLOADS.values():
        steps = math.ceil(config.epochs * workload.examples / config.batch_size)
        for method in config.methods:
            runs = sum(
                len(cohort.runs)
                for cohort in every
                if (cohort.dataset, cohort.method) == (workload.dataset, method)
                and cohort.is_private
            )
            if runs:
                loads.append(Load(workload.model, method, runs, runs * steps))
    return tuple(loads)


def device_hours(
    rows: Sequence[Row], model: str, peer: str | None = None, precision: str = "float32"
) -> float | None:
    """Hours of one device for the model's part; None if a time is missing.

    Ours: each method at its own time, by the R that was fastest. A peer: all methods' steps at the
    time of its one step, which clips plainly; what the methods add to it is left out.
    """
    hours = 0.0
    for load in private_loads():
        if load.model != model:
            continue
        times = [
            row.seconds_per_run_step
            for row in rows
            if row.model == model and row.competitor == (peer or load.method)
            if peer or row.precision == precision
            if row.status == MEASURED and row.seconds_per_run_step is not None
        ]
        if not times:
            return None
        hours += load.steps * min(times) / 3600
    return hours


def text_estimate(rows: Sequence[Row]) -> str:
    """The estimate for people, in device-hours."""
    loads = private_loads()
    runs, steps = sum(load.runs for load in loads), sum(load.steps for load in loads)
    lines = [("device-hours", *WORKLOADS, "whole study")]
    measured = dict.fromkeys(row.competitor for row in rows)
    kinds = [
        (None, low) for low in dict.fromkeys(r.precision for r in rows if is_ours(r.competitor))
    ]
    for peer, low in [*kinds, *((name, "float32") for name in measured if not is_ours(name))]:
        hours = [device_hours(rows, model, peer, low) for model in WORKLOADS]
        whole = None if None in hours else math.fsum(h for h in hours if h is not None)
        title = PEERS[peer][0] if peer else f"oso, {low}, each method at its best R"
        lines.append((title, *(_hours(each) for each in (*hours, whole))))
    return (
        f"The study's {runs:,} private runs have {steps / 1e6:.1f} million steps. On this device "
        "they take,\nwithout evaluations; a peer as if the methods' steps were its own:"
        f"\n\n{aligned(lines, left=1)}"
    )


def _hours(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.1f}"
