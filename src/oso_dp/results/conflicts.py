"""Stored runs that conflict with a study's budget, checked before training.

On private data, all runs of a study share one epsilon, and the noise is calibrated to
their number; the cost of another study's runs adds up. Searches over different ranges of `grid`
differ in their points only; their runs together would exceed the budget of one search.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from oso_dp.accounting.search_accounting import find_search_accounting
from oso_dp.checkpoint import FINISHED_RUNS, read_finished_runs
from oso_dp.errors import OsoError
from oso_dp.results.checks import protected, records
from oso_dp.results.read import read_runs_of, run_ids
from oso_dp.results.schema import RUNS
from oso_dp.study.cohort import Cohort
from oso_dp.study.identity import POINT

# Columns that a changed configuration, or changed data, change.
_COMPARED = (
    *("data_version", "examples", "method", "model", "k", "epsilon", "delta", "batch_size"),
    *("search_accounting", "precision", "randomness", "evaluate_every", "epochs"),
)
ANOTHER_RESULTS = "other folders under `results` and `report`"
ANOTHER_NAME = "another study under `name`"


def study_places(results: Path, build: Path) -> dict[Path, str]:
    """The places that may have runs of a study, with the keys to change to avoid each.

    `results` is its store, `build` its working folder: with shards that may not be collected yet,
    and with finished runs of jobs that have not ended.
    """
    parts = [path.parent for path in build.glob("parts/*/shard*/runs.parquet")]
    parts += build.glob(f"parts/*/shard*/progress/{FINISHED_RUNS}")
    return {results: ANOTHER_RESULTS} | dict.fromkeys(sorted(parts), ANOTHER_NAME)


def places_elsewhere(root: Path, own: Path) -> list[Path]:
    """As `study_places`, those of other studies and of campaigns: below `root`, not below `own`."""
    shards = ("*/parts/*/shard*", "*/parts/*", "campaign/parts-of/**")
    jobs = ("*/parts/*/shard*/progress", "*/parts/.progress/*", "campaign/parts-of/**/.progress/*")
    found = {path.parent for below in shards for path in root.glob(f"{below}/runs.parquet")}
    found |= {path for below in jobs for path in root.glob(f"{below}/{FINISHED_RUNS}")}
    return sorted(path for path in found if not path.is_relative_to(own))


def check_budget_unspent(
    places: Mapping[Path, str], cohorts: Iterable[Cohort], elsewhere: Iterable[Path] = ()
) -> None:
    """OsoError for runs of another study on private data, or without evaluations.

    The latter would be trained again, as would runs of this study that are in `elsewhere` alone. A
    missing folder has no runs. A data set that was not public stays so.

    Args:
        places: stores, shards or jobs' finished runs, with the keys to change to avoid each.
        cohorts: all cohorts of the study, since the noise of each counts the runs of all.
        elsewhere: shards that this study does not collect, and jobs that it does not resume.
    """
    planned: dict[str, list[Cohort]] = {}
    for cohort in cohorts:
        if not cohort.is_public:
            planned.setdefault(cohort.dataset, []).append(cohort)
        elif cohort.data_version is not None:  # of a user's own data
            _check_always_public(places, cohort.dataset)
    for dataset, ours in planned.items():
        ours_ids = {run.run_id for cohort in ours for run in cohort.runs}
        others: dict[Path, set[str]] = {}
        difference = ""
        planned_here: dict[Path, set[str]] = {}
        for place in places:
            rows = _runs_on(place, dataset)
            held = {*rows["run_id"]}
            if strange := held - ours_ids:
                others[place] = strange
                difference = difference or _difference(rows[rows["run_id"].isin(strange)], ours)
            planned_here[place] = held & ours_ids
        if others:
            changes = " and ".join(dict.fromkeys(places[place] for place in others))
            raise OsoError(
                f"{next(iter(others))}: has {len(set().union(*others.values()))} runs on {dataset} "
                f"that are not of this study{difference}; their epsilon is spent and adds to this "
                f"study's; use the configuration that made them, or name {changes} and add up both "
                "epsilons and both deltas"
            )
        known = set().union(*planned_here.values())
        for place in elsewhere:
            if lost := {*_runs_on(place, dataset)["run_id"]} & ours_ids - known:
                raise OsoError(
                    f"{place}: has {len(lost)} runs of this study on {dataset}, of a study of "
                    "another name, or of a campaign; their epsilon is spent, and they would be "
                    "trained again; finish it, and collect its shards into "
                    f"{next(iter(places))}"
                )
        whole = {run for place, held in planned_here.items() if held for run in _whole_runs(place)}
        for place, held in planned_here.items():
            if half := held - whole:
                raise OsoError(
                    f"{place}: has {len(half)} runs on {dataset} without evaluations; their "
                    "epsilon is spent, and they would be trained again; restore "
                    "evaluations.parquet, or collect the shards of these runs"
                )


def _runs_on(place: Path, dataset: str) -> pd.DataFrame:
    if place.name != FINISHED_RUNS:
        rows = read_runs_of(place, dataset)
    elif f"/{dataset}." in str(place):  # in a folder that its cohort's name begins
        rows = pd.DataFrame(read_finished_runs(place)["runs"], columns=RUNS.names)
    else:
        rows = RUNS.empty_table().to_pandas()
    return rows[rows["dataset"] == dataset]


def _whole_runs(place: Path) -> set[str]:
    """Those with evaluations, or that diverged."""
    if place.name != FINISHED_RUNS:
        return run_ids(place)
    return {row["run_id"] for row in read_finished_runs(place)["runs"]}


def _check_always_public(places: Iterable[Path], dataset: str) -> None:
    for place in places:
        if protected(_runs_on(place, dataset)).any():
            raise OsoError(
                f"{place}: has runs on {dataset} from when it was not public; declare it as "
                f"public=False, or name {ANOTHER_RESULTS}"
            )


def _difference(rows: pd.DataFrame, cohorts: Sequence[Cohort]) -> str:
    """The first column in which the rows differ from all cohorts, for a message; else empty."""
    for column in _COMPARED:
        stored = {*rows[column].dropna()}
        planned = {getattr(one, column) for one in cohorts} - {None}
        if stored != planned and not stored & planned:
            there, here = (", ".join(map(str, values)) or "none" for values in (stored, planned))
            return f" ({column}: {there} there, {here} here)"
    return ""


def check_same_search(
    store: Path, cohorts: Iterable[Cohort], instead: str = ANOTHER_RESULTS
) -> None:
    """OsoError if the store has runs of another search of a cohort; a missing store has none."""
    check_same_search_among({store: [store]}, cohorts, instead)


def check_same_search_among(
    folders: Mapping[Path, Sequence[Path]],
    cohorts: Iterable[Cohort],
    instead: str = ANOTHER_RESULTS,
) -> None:
    """As `check_same_search`, for the runs of several folders together.

    A campaign's folder has a shard per group of runs, none of which need exceed the grid alone.
    """
    for cohort in cohorts:
        is_search = find_search_accounting(cohort.search_accounting).is_search
        if not cohort.is_private or not is_search:
            continue  # without a budget, or each point has a separate one
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
                f"{' and '.join(map(str, strange))}: has {len(held)} points of another search of "
                f"{cohort.name}, over other ranges of `grid`; together they would exceed its "
                f"budget; name {instead}"
            )


def _points(store: Path, cohort: Cohort) -> set[tuple[float | None, ...]]:
    """The grid points of the stored runs of this cohort."""
    columns = cohort.columns
    return {
        tuple(row[name] for name in POINT)
        for row in records(read_runs_of(store, cohort.name))
        if all(row[name] == value for name, value in columns.items())
    }
