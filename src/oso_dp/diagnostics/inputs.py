"""What diagnostics share: a private cohort of a plan, its data, and the steps of a run."""

import math
from collections.abc import Iterator
from pathlib import Path

from oso_dp.data.arrays import Arrays
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError
from oso_dp.privacy.promise import EXAMPLE
from oso_dp.study.calibration import check_budget
from oso_dp.study.cohort import PlannedCohort, Run
from oso_dp.study.plan import read_plan
from oso_dp.training.loop import Training


def read_inputs(
    plan: Path, cohort: str, data: Path, unit: str = EXAMPLE.name
) -> tuple[PlannedCohort, str, Arrays]:
    """The cohort of this name, the plan's device, and the data.

    OsoError for a cohort that is not private, protects another unit or whose data are not public,
    and for data that differ from the plan.
    """
    planned = read_plan(plan)
    chosen = planned.cohort(cohort)
    if not chosen.is_private:
        raise OsoError(f"cohort {cohort}: not private; must be trained with a private method")
    if not chosen.is_public:
        raise OsoError(
            f"{plan}: data set {chosen.dataset!r} is not public; must be public, since diagnostics "
            "are not private"
        )
    if chosen.privacy_unit.name != unit:
        raise OsoError(
            f"cohort {cohort}: unit: {chosen.privacy_unit.name}; must be {unit}, whose gradients "
            "or updates are measured"
        )
    if chosen.randomness != "seeded":
        raise OsoError(
            f"{plan}: randomness: system; must be seeded (for public data), since diagnostics are "
            "not private"
        )
    check_budget([chosen])
    arrays = load_prepared(data, chosen.dataset, chosen.preparation)
    return chosen, planned.device, arrays


def find_run(cohort: PlannedCohort, **wanted: float | None) -> Run:
    """The cohort's first run with these initial values, by name; None for any."""
    runs = list(cohort.runs)
    for name, value in wanted.items():
        if value is None:
            continue
        known = [getattr(run, name) for run in runs]
        runs = [
            run
            for run, at in zip(runs, known, strict=True)
            if at is not None and math.isclose(value, at, rel_tol=1e-3)
        ]
        if not runs:
            allowed = ", ".join(f"{at:g}" for at in dict.fromkeys(known) if at is not None)
            raise OsoError(
                f"--{name.replace('_', '-')}: {value:g}; must be one of {allowed or 'none'} in "
                f"{cohort.name}"
            )
    return runs[0]


def take_steps(training: Training, last: int) -> Iterator[int]:
    """Train the only run up to step `last`, and yield each step; OsoError if it diverges."""
    while training.state.step < last:
        training.take_step()
        if not training.alive:
            (outcome,) = training.outcomes
            raise OsoError(
                f"run {outcome.run_id}: diverged at step {outcome.diverged_at} of {last}"
            )
        yield training.state.step
