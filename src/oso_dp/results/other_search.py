"""Before training: would a store's runs of another search pass as this one's?

Searches over other ranges of `grid` are alike in every column but their points. Their runs together
look like one search that is larger than its budget paid for, and nobody could tell them apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from oso_dp.accounting.search_accounting import SINGLE
from oso_dp.errors import OsoError
from oso_dp.results.read import read_runs_of
from oso_dp.results.spent import ANOTHER_RESULTS
from oso_dp.study.cohort import Cohort
from oso_dp.study.identity import COHORT, POINT


def refuse_other_search(
    store: Path, cohorts: Iterable[Cohort], instead: str = ANOTHER_RESULTS
) -> None:
    """OsoError names the store, the cohort and what to name instead; no store yet holds nothing."""
    refuse_other_search_among({store: [store]}, cohorts, instead)


def refuse_other_search_among(
    folders: Mapping[Path, Sequence[Path]],
    cohorts: Iterable[Cohort],
    instead: str = ANOTHER_RESULTS,
) -> None:
    """As `refuse_other_search`, of all that these folders' stores hold together.

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
