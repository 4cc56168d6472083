"""Before training: what stored runs stand in the way of a budget.

Runs on data that are not public: all runs of a study share one epsilon, and its noise is computed
for their number. Whatever runs of another study have shown is spent, and comes on top.

Runs of another search: searches over other ranges of `grid` are alike in every column but their
points. Their runs together look like one search that is larger than its budget paid for.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from oso_dp.accounting.search_accounting import SINGLE
from oso_dp.errors import OsoError
from oso_dp.results.read import read_runs_of
from oso_dp.results.read import run_ids as whole_runs
from oso_dp.study.cohort import Cohort
from oso_dp.study.identity import COHORT, POINT

ANOTHER_RESULTS = "other folders under `results` and `report`"
ANOTHER_NAME = "another study under `name`"


def study_places(results: Path, build: Path) -> dict[Path, str]:
    """The folders with a study's runs, and what to change for a study that has none of them.

    results: its store. build: its working folder, whose parts may not be collected yet.
    """
    parts = sorted(path.parent for path in build.glob("parts/*/shard*/runs.parquet"))
    return {results: ANOTHER_RESULTS} | dict.fromkeys(parts, ANOTHER_NAME)


def check_budget_unspent(places: Mapping[Path, str], cohorts: Iterable[Cohort]) -> None:
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


def check_same_search(
    store: Path, cohorts: Iterable[Cohort], instead: str = ANOTHER_RESULTS
) -> None:
    """OsoError names the store, the cohort and what to name instead; no store yet holds nothing."""
    check_same_search_among({store: [store]}, cohorts, instead)


def check_same_search_among(
    folders: Mapping[Path, Sequence[Path]],
    cohorts: Iterable[Cohort],
    instead: str = ANOTHER_RESULTS,
) -> None:
    """As `check_same_search`, of all that these folders' stores hold together.

    A campaign's folder has a store for each group of runs: no one of them need hold too much.
    OsoError names the folders that hold what the cohort does not plan.
    """
    for cohort in cohorts:
        if cohort.search_accounting == SINGLE:  # no search: each point has a budget of its own
            continue
        planned = {run.point for run in cohort.runs}
        by_folder = {
            folder: set().union(*(_points(store, cohort) for store in stores))
            for folder, stores in folders.items()
        }
        both = planned.union(*by_folder.values())
        if len(both) > cohort.grid_runs:
            strange = [folder for folder, points in by_folder.items() if points - planned]
            held = set().union(*(by_folder[folder] for folder in strange))
            raise OsoError(
                f"{' and '.join(map(str, strange))}: holds {len(held)} points of another search of "
                f"{cohort.name}, over other ranges of `grid`, which no column tells from this one: "
                f"together they would exceed its budget; name {instead}"
            )


def _points(store: Path, cohort: Cohort) -> set[tuple[float | None, ...]]:
    """Where the stored runs start that are of this cohort, as far as their rows say."""
    rows = read_runs_of(store, cohort.name).astype(object)
    rows = rows.where(rows.notna(), None)
    facts = {name: getattr(cohort, name) for name in (*COHORT, "precision")}
    for name, value in {**facts, "settings": cohort.run_options}.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    return set(rows[list(POINT)].itertuples(index=False, name=None))
