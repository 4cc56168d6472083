"""Before training on data that are not public: does a store hold runs of another study of them?

All runs of a study share one epsilon there, and its noise is computed for their number. Whatever
other runs have shown is spent, and comes on top.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from oso_dp.errors import OsoError
from oso_dp.results.read import read_runs_of
from oso_dp.results.read import run_ids as whole_runs
from oso_dp.study.cohort import Cohort

ANOTHER_RESULTS = "other folders under `results` and `report`"
ANOTHER_NAME = "another study under `name`"


def study_places(results: Path, build: Path) -> dict[Path, str]:
    """The folders with a study's runs, and what to change for a study that has none of them.

    results: its store. build: its working folder, whose parts may not be collected yet.
    """
    parts = sorted(path.parent for path in build.glob("parts/*/shard*/runs.parquet"))
    return {results: ANOTHER_RESULTS} | dict.fromkeys(parts, ANOTHER_NAME)


def refuse_spent(places: Mapping[Path, str], cohorts: Iterable[Cohort]) -> None:
    """OsoError names a place with runs of another study, or with runs whose evaluations are lost.

    The latter would be trained again. A folder that is not there yet holds nothing.

    places: stores or parts, and of each what to change for a study that does not have it. cohorts:
    all of the study, since each one's noise counts the runs of all.
    """
    planned: dict[str, set[str]] = {}
    for cohort in cohorts:
        if not cohort.is_public:
            planned.setdefault(cohort.dataset, set()).update(run.run_id for run in cohort.runs)
    for dataset, run_ids in planned.items():
        others: dict[Path, set[str]] = {}
        planned_here: dict[Path, set[str]] = {}
        for place in places:
            rows = read_runs_of(place, dataset)
            held = {*rows.loc[rows["dataset"] == dataset, "run_id"]}
            if strange := held - run_ids:
                others[place] = strange
            planned_here[place] = held & run_ids
        if others:
            changes = " and ".join(dict.fromkeys(places[place] for place in others))
            raise OsoError(
                f"{next(iter(others))}: holds {len(set().union(*others.values()))} runs on "
                f"{dataset} that are not of this study; what they cost is spent, in whatever "
                "folder they lie, and comes on top of this study's epsilon: go on with the "
                f"configuration that made them, or name {changes}, and add both epsilons and both "
                "deltas"
            )
        whole = {run for place, held in planned_here.items() if held for run in whole_runs(place)}
        for place, held in planned_here.items():
            if half := held - whole:
                raise OsoError(
                    f"{place}: holds {len(half)} runs on {dataset} without their evaluations; they "
                    "are spent, and would be trained again: bring evaluations.parquet back, or "
                    "collect the parts that these runs came in"
                )
