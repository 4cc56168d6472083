"""Before training: check that the planned noise multiplier keeps the planned budget.

The digests of a plan show that it was not edited. This check recomputes epsilon from the values
that training uses. It needs dp_accounting, which a campaign's machine may lack.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.search_accounting import FINAL_STAGE
from oso_dp.accounting.tuning_cost import STOPPING_ETA, Search
from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort
from oso_dp.study.linear_scaling import make_linear_scaling_search

_SLACK = 1 + 1e-6  # relative; plans round their noise up


def check_budget(cohorts: Iterable[PlannedCohort]) -> None:
    """OsoError names the first cohort whose search costs more than its epsilon.

    Without dp_accounting nothing is checked.
    """
    try:
        if find_spec("dp_accounting") is None:  # importing all of it would take a second
            return
    except ImportError:
        return
    for cohort in cohorts:
        if cohort.epsilon is None or cohort.delta is None:
            continue
        search, budget = _search(cohort, cohort.epsilon, cohort.delta)
        spent = _epsilon(search, cohort.noise_multiplier, cohort.delta)
        if spent > budget * _SLACK:
            raise OsoError(
                f"{cohort.name}: noise_multiplier: {cohort.noise_multiplier:g}; would cost epsilon "
                f"{format_spent_epsilon(spent)} (delta {cohort.delta!r}, {cohort.budgeted_runs} "
                f"runs), above the budget of {budget:g}; write the plan again with `oso plan`"
            )


def _search(cohort: PlannedCohort, epsilon: float, delta: float) -> tuple[Search, float]:
    """The search that the cohort's noise was calibrated for, and its budget."""
    if cohort.stage is not None:
        stages = make_linear_scaling_search(cohort)
        if cohort.stage == FINAL_STAGE:
            return stages.final_stage(stages.noise_multipliers(epsilon, delta)[:-1]), epsilon
        fraction = stages.trial_fractions[stages.stages.index(cohort.stage)]
        return stages.trial_stage, fraction * epsilon
    eta = (
        1.0 if cohort.stopping_distribution is None else STOPPING_ETA[cohort.stopping_distribution]
    )
    search = Search(
        cohort.sampling, cohort.steps, cohort.budgeted_runs, cohort.search_accounting, eta
    )
    return search, epsilon


@cache  # equal searches cost the same
def _epsilon(search: Search, noise_multiplier: float, delta: float) -> float:
    return search.epsilon(noise_multiplier, delta)
