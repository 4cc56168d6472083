"""Before training: does the planned noise keep the planned budget?

A plan's digests tell that it is as it was written; this tells that what was written is right, from
the numbers that training goes by. It needs dp_accounting, which a campaign's machine may lack.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

from oso_dp.accounting.formatting import epsilon_text
from oso_dp.accounting.search import SHAPES, Search
from oso_dp.accounting.trial_shares import FINAL
from oso_dp.errors import OsoError
from oso_dp.study.cohort import PlannedCohort
from oso_dp.study.scaled import scaled_search

_SLACK = 1 + 1e-6  # relative; plans round their noise up


def check_affordable(cohorts: Iterable[PlannedCohort]) -> None:
    """OsoError names the first cohort whose whole search costs more than its epsilon.

    Nothing is checked where dp_accounting is not installed.
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
                f"{cohort.name}: noise_multiplier {cohort.noise_multiplier:g} would cost epsilon "
                f"{epsilon_text(spent)} (delta {cohort.delta!r}, {cohort.paid_runs} runs); "
                f"its budget is {budget:g}: write the plan anew with `oso plan`"
            )


def _search(cohort: PlannedCohort, epsilon: float, delta: float) -> tuple[Search, float]:
    """What the cohort's noise pays for, and the budget of that."""
    if cohort.part is not None:
        whole = scaled_search(cohort)
        if cohort.part == FINAL:
            return whole.final(whole.noise_multipliers(epsilon, delta)[:-1]), epsilon
        return whole.trial, whole.shares[whole.parts.index(cohort.part)] * epsilon
    shape = 1.0 if cohort.stopping_shape is None else SHAPES[cohort.stopping_shape]
    search = Search(cohort.sampling, cohort.steps, cohort.paid_runs, cohort.selection, shape)
    return search, epsilon


@cache  # cohorts that search alike cost the same
def _epsilon(search: Search, noise_multiplier: float, delta: float) -> float:
    return search.epsilon(noise_multiplier, delta)
