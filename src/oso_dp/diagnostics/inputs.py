"""What a probe works on: a private cohort of a plan, and the data that it was planned for."""

from pathlib import Path

from oso_dp.data.arrays import Arrays
from oso_dp.data.validation import load_prepared
from oso_dp.errors import OsoError
from oso_dp.study.budget_check import check_budget
from oso_dp.study.cohort import PlannedCohort
from oso_dp.study.plan import read_plan


def read_inputs(plan: Path, cohort: str, data: Path) -> tuple[PlannedCohort, str, Arrays]:
    """The cohort of that name, the plan's device, and the data.

    OsoError for a cohort without privacy, one whose randomness says that its data need protection,
    and data of another data set or size than planned.
    """
    planned = read_plan(plan)
    chosen = planned.cohort(cohort)
    if not chosen.is_private:
        raise OsoError(f"cohort {cohort}: has no privacy, so there is nothing to compare")
    if not chosen.is_public:
        raise OsoError(
            f"{plan}: {chosen.dataset} is not public, and this looks at the data without privacy; "
            "allowed is public data"
        )
    if chosen.randomness != "seeded":
        raise OsoError(
            f"{plan}: randomness system says that the data need protection, and this looks at them "
            "without privacy; of public data, plan with randomness seeded"
        )
    check_budget([chosen])
    arrays = load_prepared(data, chosen.dataset, chosen.preparation)
    return chosen, planned.device, arrays
