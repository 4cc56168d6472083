"""Read a results folder for analysis."""

from collections.abc import Sequence
from pathlib import Path

from oso_dp.analysis.result_set import ResultSet, list_grids
from oso_dp.analysis.search_costs import COSTS_FILE, read_costs
from oso_dp.analysis.side_measurements import MEASUREMENTS, read_vocabulary_coverage
from oso_dp.errors import OsoError
from oso_dp.results.pate_rows import FILE as PATE
from oso_dp.results.pate_rows import read_rows as read_pate
from oso_dp.results.read import read_results
from oso_dp.study.plan import Plan


def read_result_set(results: Path, plans: Sequence[Plan] = ()) -> ResultSet:
    """Read a results folder: runs, evaluations and side measurements.

    Args:
        results: The folder.
        plans: Plans of the study, for grids that were not run completely.

    Raises:
        OsoError: The folder is missing, contains no run or has another schema, or one of its files
            is malformed.
    """
    results = Path(results)
    if not results.is_dir():
        raise OsoError(f"{results}: no such results folder; pass one with runs and evaluations")
    stored = read_results(results)
    if stored.runs.empty:
        raise OsoError(f"{results}: contains no runs; run a study first")
    return ResultSet(
        stored.runs,
        stored.evaluations,
        list_grids(plans),
        costs=read_costs(results / COSTS_FILE),
        known_words=read_vocabulary_coverage(results),
        pate=read_pate(results / PATE),
        **{name: table.read(results / table.file) for name, table in MEASUREMENTS.items()},
    )
