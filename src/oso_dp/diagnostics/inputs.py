"""Reads a diagnostic's inputs: a private cohort of a plan, and its data."""

from pathlib import Path

from oso_dp.data.arrays import Arrays
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError
from oso_dp.study.calibration import check_budget
from oso_dp.study.cohort import PlannedCohort
from oso_dp.study.plan import read_plan


def read_inputs(plan: Path, cohort: str, data: Path) -> tuple[PlannedCohort, str, Arrays]:
    """The cohort of this name, the plan's device, and the data.

    OsoError for a cohort that is not private, protects users or whose data are not public, and for
    data that differ from the plan.
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
    if chosen.unit is not None:
        raise OsoError(
            f"cohort {cohort}: unit: {chosen.unit}; must be example, since diagnostics read "
            "gradients of examples"
        )
    if chosen.randomness != "seeded":
        raise OsoError(
            f"{plan}: randomness: system; must be seeded (for public data), since diagnostics are "
            "not private"
        )
    check_budget([chosen])
    arrays = load_prepared(data, chosen.dataset, chosen.preparation)
    return chosen, planned.device, arrays
