"""A user's own data set in a study: what may be asked of it, and its one budget.

In the paper's study each grid has a budget of its own, and seeds are free: that is for public data.
What a study releases of data that are not public is all its runs: of every method, grid point and
seed. They are composed into one epsilon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.data.catalogue import DatasetInfo
from oso_dp.errors import OsoError
from oso_dp.methods import find_method, method_names
from oso_dp.study.cohort import Cohort


def check_private_datasets(
    info: DatasetInfo,
    epsilons: Sequence[float],
    methods: Iterable[str],
    search_accounting: str,
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
    if search_accounting != COMPOSITION:
        raise ValueError(
            f"search_accounting {search_accounting}: {protected}; allowed is {COMPOSITION}, since the "
            "results hold every run"
        )
    if len(epsilons) != 1:
        raise ValueError(
            f"{where}.epsilons {epsilons}: {protected}; allowed is one, the total of all methods, "
            "grids and seeds"
        )
    for name in methods:
        if name in method_names() and not find_method(name).is_private:
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
    """OsoError unless each epsilon that is for all runs on a data set pays for so many.

    cohorts: of one plan, or of all that are trained together. On such data every run has noise, and
    no noise a seed.
    """
    totals = runs_by_dataset(cohorts)
    for cohort in cohorts:
        if cohort.budget_runs is None:
            continue
        if not cohort.is_private or cohort.randomness != "system":
            raise OsoError(
                f"{cohort.name}: epsilon {cohort.epsilon}, randomness {cohort.randomness}: "
                f"{cohort.dataset} is not declared public"
            )
        if totals[cohort.dataset] > cohort.budget_runs:
            raise OsoError(
                f"{cohort.name}: {totals[cohort.dataset]} runs on {cohort.dataset} are planned, "
                f"its epsilon pays for {cohort.budget_runs}: plan them together, with `oso plan`"
            )


def runs_by_dataset(cohorts: Iterable[Cohort]) -> dict[str, int]:
    """How many runs of these cohorts train on each data set: all methods, points and seeds."""
    runs: dict[str, set[str]] = {}
    for cohort in cohorts:
        runs.setdefault(cohort.dataset, set()).update(run.run_id for run in cohort.runs)
    return {dataset: len(run_ids) for dataset, run_ids in runs.items()}
