"""A user's own data set in a study: what may be asked of it, and its one budget.

In the paper's study each grid has a budget of its own, and seeds are free: that is for public data.
What a study releases of data that are not public is all its runs: of every method, grid point and
seed. They are composed into one epsilon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from oso_dp.accounting.tuning import COMPOSITION
from oso_dp.data.catalogue import DatasetInfo
from oso_dp.errors import OsoError
from oso_dp.methods import find_method, method_names
from oso_dp.study.cohort import Cohort


def check_protected(
    info: DatasetInfo,
    epsilons: Sequence[float],
    methods: Iterable[str],
    tuning_accounting: str,
    randomness: str,
) -> None:
    """ValueError for what a study cannot do with data that are not declared public."""
    if info.public:
        return
    where = f"datasets.{info.name}"
    protected = f"{where} is not declared public"
    if randomness != "system":
        raise ValueError(
            f"randomness {randomness}: {protected}; allowed is system (whoever knows a seed "
            "knows the noise)"
        )
    if tuning_accounting != COMPOSITION:
        raise ValueError(
            f"selection {tuning_accounting}: {protected}; allowed is {COMPOSITION}, since the "
            "results hold every run"
        )
    if len(epsilons) != 1:
        raise ValueError(
            f"{where}.epsilons {epsilons}: {protected}; allowed is one, the total of all methods, "
            "grids and seeds"
        )
    for name in methods:
        if name in method_names() and not find_method(name).private:
            raise ValueError(f"methods.{name}: protects nobody, and {protected}; leave it out")


def with_one_budget(cohorts: Sequence[Cohort], infos: Iterable[DatasetInfo]) -> list[Cohort]:
    """The cohorts; those on data that are not public know how many runs share their epsilon."""
    private = {info.name for info in infos if not info.public}
    totals = runs_by_dataset(cohort for cohort in cohorts if cohort.dataset in private)
    return [
        replace(cohort, budget_runs=totals[cohort.dataset]).with_runs(cohort.points, cohort.seeds)
        if cohort.dataset in totals
        else cohort
        for cohort in cohorts
    ]


def check_one_budget(cohorts: Sequence[Cohort]) -> None:
    """OsoError unless each epsilon that is for all runs on a data set pays for so many."""
    totals = runs_by_dataset(cohorts)
    for cohort in cohorts:
        if cohort.public:
            continue
        if totals[cohort.dataset] > (cohort.budget_runs or 0):
            raise OsoError(
                f"{cohort.name}: the plan has {totals[cohort.dataset]} runs on {cohort.dataset}, "
                f"its epsilon pays for {cohort.budget_runs}: write the plan anew with `oso plan`"
            )


def runs_by_dataset(cohorts: Iterable[Cohort]) -> Counter[str]:
    """How many runs of these cohorts train on each data set: all methods, points and seeds."""
    totals: Counter[str] = Counter()
    for cohort in cohorts:
        totals[cohort.dataset] += len(cohort.runs)
    return totals
