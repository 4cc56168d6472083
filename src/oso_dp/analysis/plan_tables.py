"""Grid sizes and noise multipliers of a study, from its plan or another JSON file.

The file gives both also for cohorts that were not run. It is a list of objects with the keys
dataset, method, k, epsilon, runs and noise_multiplier, and optionally delta, steps, sampling_rate,
query_noise_multiplier and budget_runs (others are ignored), or a plan, which has this list under
`cohorts`. Untuned runs and searches by the linear scaling rule belong to no grid under one budget
and are left out. Random stopping has a grid, but its noise is not that of a composed grid: its
cohorts give only the size.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import COMPOSITION, RANDOM_STOPPING
from oso_dp.errors import OsoError
from oso_dp.files import check_name, check_regular, format_os_error, parse_json
from oso_dp.study.plan import Plan, read_plan

GRID = ("dataset", "method", "k", "epsilon")
KEYS = (*GRID, "runs", "noise_multiplier")
OPTIONAL = ("delta", "steps", "sampling_rate", "query_noise_multiplier", "budget_runs")


def read_paper_plan(*paths: Path) -> pd.DataFrame:
    """Budget files as one table with columns `KEYS` and `OPTIONAL`; empty without a file.

    If two files contain the same grid, the first counts. NaN: epsilon and noise_multiplier of
    no_dp, a missing optional key, and the noise multipliers of a grid that only random stopping
    has. Raises OsoError for a file that is missing, not JSON, or lacks a key.
    """
    rows = [row for path in paths for row in _rows(path)]
    composed = [row for search_accounting, row in rows if search_accounting == COMPOSITION]
    stopped = [
        row | _NO_NOISE for search_accounting, row in rows if search_accounting == RANDOM_STOPPING
    ]
    return pd.DataFrame([*composed, *stopped], columns=[*KEYS, *OPTIONAL]).drop_duplicates(
        [*GRID], ignore_index=True
    )


_NO_NOISE = {"noise_multiplier": math.nan, "query_noise_multiplier": math.nan}


def _rows(path: Path) -> list[tuple[str, dict]]:
    """Each entry of the file, with its search accounting."""
    stored = _read_stored(path)
    if isinstance(stored, dict):
        stored = stored.get("cohorts")
    if not isinstance(stored, list) or not all(isinstance(row, dict) for row in stored):
        raise OsoError(f"{path}: must be a list of objects with the keys {', '.join(KEYS)}")
    return [
        (row.get("search_accounting") or COMPOSITION, _row(path, index, row))
        for index, row in enumerate(stored)
    ]


def read_study_plans(paths: Iterable[Path]) -> list[Plan]:
    """The budget files that are plans; bare lists are skipped.

    Raises OsoError for a plan that was changed after it was written.
    """
    stored = [(path, _read_stored(path)) for path in paths]
    return [
        read_plan(path)
        for path, content in stored
        if isinstance(content, dict) and {"version", "config"} & content.keys()
    ]


def _read_stored(path: Path) -> Any:
    check_regular(Path(path))
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise OsoError(f"{path}: cannot be read ({format_os_error(error)})") from None
    except UnicodeDecodeError:
        raise OsoError(f"{path}: not a plan (`oso plan` writes one): not UTF-8 text") from None
    except ValueError as error:
        raise OsoError(f"{path}: not a plan (`oso plan` writes one): {error}") from None


def _row(path: Path, index: int, row: dict) -> dict:
    missing = [key for key in KEYS if key not in row]
    if missing:
        raise OsoError(
            f"{path}: entry {index}: {missing[0]} is missing; required are {', '.join(KEYS)}"
        )
    for key in ("dataset", "method"):
        check_name(row[key], f"{path}: entry {index}, {key}")
    try:
        return {
            "dataset": str(row["dataset"]),
            "method": str(row["method"]),
            "k": int(row["k"]),
            "epsilon": _as_optional(row["epsilon"]),
            "runs": int(row["runs"]),
            "noise_multiplier": _as_optional(row["noise_multiplier"]),
            **{key: _as_optional(row.get(key)) for key in OPTIONAL},
        }
    except (TypeError, ValueError, OverflowError):
        raise OsoError(
            f"{path}: entry {index} must have integers k and runs, and numbers (or null) "
            f"epsilon, noise_multiplier, {', '.join(OPTIONAL)}"
        ) from None


def _as_optional(value: Any) -> float:
    return math.nan if value is None else float(value)


def grid_sizes(budget: pd.DataFrame) -> dict[tuple[str, str, int], int]:
    """(data set, method, k) -> N, the number of runs of the full grid, for grids of the budget."""
    greatest = budget.groupby(["dataset", "method", "k"])["runs"].max()
    return greatest.astype(int).to_dict()
