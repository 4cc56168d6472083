"""Before training on data that are not public: does the store hold runs of another study of them?

All runs of a study share one epsilon there, and its noise is computed for their number. Whatever
other runs have shown is spent, and comes on top.
"""

from collections.abc import Iterable
from pathlib import Path

from oso_dp.errors import OsoError
from oso_dp.results.read import runs_of
from oso_dp.study.cohort import Cohort


def refuse_spent(store: Path, cohorts: Iterable[Cohort]) -> None:
    """OsoError names the store and the data set; nothing where there is no store yet.

    cohorts: all of the study, since each one's noise counts the runs of all.
    """
    planned: dict[str, set[str]] = {}
    for cohort in cohorts:
        if not cohort.public:
            planned.setdefault(cohort.dataset, set()).update(run.run_id for run in cohort.runs)
    for dataset, run_ids in planned.items():
        rows = runs_of(store, dataset)
        others = {*rows.loc[rows["dataset"] == dataset, "run_id"]} - run_ids
        if others:
            raise OsoError(
                f"{store}: holds {len(others)} runs on {dataset} that are not of this study; what "
                "they cost is spent, in whatever folder they lie, and comes on top of this study's "
                "epsilon: go on with the configuration that made them, or name another folder "
                "under `results`, and add both epsilons and both deltas"
            )
