"""User-defined data sets that are not public, in a study: validation, and their single budget.

The paper gives each grid a budget and counts one seed of it. That is sound for public data only.
On private data a study releases all of its runs, of every method, grid point and seed,
so they are composed into one epsilon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oso_dp.accounting.search_accounting import COMPOSITION, find_search_accounting
from oso_dp.data.catalogue import DatasetSpec
from oso_dp.errors import OsoError
from oso_dp.methods import find_method, method_names
from oso_dp.study.cohort import Cohort


def check_private_datasets(
    info: DatasetSpec,
    epsilons: Sequence[float],
    methods: Iterable[str],
    search_accounting: str,
    randomness: str,
) -> None:
    """ValueError for what a study cannot do with data that are not declared public."""
    if info.public:
        return
    where = f"datasets.{info.name}"
    reason = f"since {where} is not declared public"
    if randomness != "system":
        raise ValueError(
            f"randomness: {randomness}; must be system, {reason} (a seed determines the noise)"
        )
    if not find_search_accounting(search_accounting).counts_every_run:
        raise ValueError(
            f"search_accounting: {search_accounting}; must be {COMPOSITION}, {reason} and the "
            "results contain every run"
        )
    if len(epsilons) != 1:
        raise ValueError(
            f"{where}.epsilons: {epsilons}; must be one value, the total of all methods, grids and "
            f"seeds, {reason}"
        )
    for name in methods:
        if name in method_names() and not find_method(name).is_private:
            raise ValueError(f"methods.{name}: has no privacy; leave it out, {reason}")


def with_one_budget(cohorts: Sequence[Cohort], infos: Iterable[DatasetSpec]) -> list[Cohort]:
    """The cohorts, with `budget_runs` set for those on private data."""
    private = {info.name for info in infos if not info.public}
    totals = runs_by_dataset(cohort for cohort in cohorts if cohort.dataset in private)
    return [
        replace(cohort, budget_runs=totals[cohort.dataset]).with_runs(cohort.points, cohort.seeds)
        if cohort.dataset in totals
        else cohort
        for cohort in cohorts
    ]


def check_one_budget(cohorts: Sequence[Cohort]) -> None:
    """OsoError where a data set has more runs than its single epsilon covers.

    Also where a run on such data has no noise, or seeded noise.

    cohorts: of one plan, or of all plans that are trained together.
    """
    totals = runs_by_dataset(cohorts)
    for cohort in cohorts:
        if cohort.budget_runs is None:
            continue
        if not cohort.is_private or cohort.randomness != "system":
            raise OsoError(
                f"{cohort.name}: epsilon: {cohort.epsilon}, randomness: {cohort.randomness}; must "
                f"be a number and system, since {cohort.dataset} is not declared public"
            )
        if totals[cohort.dataset] > cohort.budget_runs:
            raise OsoError(
                f"{cohort.name}: {totals[cohort.dataset]} runs on {cohort.dataset}, but its "
                f"epsilon covers {cohort.budget_runs}; plan all of them together with `oso plan`"
            )


def runs_by_dataset(cohorts: Iterable[Cohort]) -> dict[str, int]:
    """The number of distinct runs on each data set: all methods, points and seeds."""
    runs: dict[str, set[str]] = {}
    for cohort in cohorts:
        runs.setdefault(cohort.dataset, set()).update(run.run_id for run in cohort.runs)
    return {dataset: len(run_ids) for dataset, run_ids in runs.items()}
