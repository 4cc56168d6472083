"""Before training: does the planned noise keep the planned budget?

A plan's digests tell that it is as it was written; this tells that what was written is right, from
the numbers that training goes by. It needs dp_accounting, which a campaign's machine may lack.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

from oso_dp.accounting.search import SHAPES, Search
from oso_dp.errors import OsoError
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.study.cohort import PlannedCohort

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
        shape = 1.0 if cohort.stopping_shape is None else SHAPES[cohort.stopping_shape]
        sampling = PoissonSampling(cohort.sampling_rate)
        search = Search(sampling, cohort.steps, cohort.paid_runs, cohort.selection, shape)
        spent = _epsilon(search, cohort.noise_multiplier, cohort.delta)
        if spent > cohort.epsilon * _SLACK:
            raise OsoError(
                f"{cohort.name}: noise_multiplier {cohort.noise_multiplier:g} would cost epsilon "
                f"{spent:.4g} (delta {cohort.delta:g}, {cohort.paid_runs} runs); its budget is "
                f"{cohort.epsilon:g}: write the plan anew with `oso plan`"
            )


@cache  # cohorts that search alike cost the same
def _epsilon(search: Search, noise_multiplier: float, delta: float) -> float:
    return search.epsilon(noise_multiplier, delta)
