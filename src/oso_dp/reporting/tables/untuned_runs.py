"""Tuned and untuned runs under one budget: single runs beside the best of a search."""

import math
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.untuned_runs import LOGARITHMIC, VARIANTS, win_ranges
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table

_OWN, _ONLINE = "the method's own search", "Online's search"
_HEADINGS = [
    *(("", name) for name in ("data set", "k", "ε", "method")),
    *(("one run without a search", name) for name in ("ν", "best guess", "at")),
    *((_OWN, name) for name in ("ν", "best", "guesses that beat it", "decades")),
    *((_ONLINE, name) for name in ("best", "guesses that beat it", "decades")),
]
_NOTES = (
    "A guess is an untuned run: a grid point whose run has the whole budget, and therefore less "
    "noise than a run of a search. Values are means over seeds in the unit of the other tables. "
    "Guesses that beat it: number of guesses whose mean is better than that of the grid search's "
    "best point; in brackets, the number for which the 95 % interval of the difference lies above "
    "0, and the number for which it does not lie below 0.",
    "Decades: width of the range of such guesses on a logarithmic axis, where each grid value "
    "covers an interval of one grid step; in brackets for the same two counts. If two "
    "hyperparameters are guessed, at the best value of the other.",
    "The best guess and the search's best point are selected on the test set, and the search is "
    "not charged for the choice of its ranges. *: the searched grid is incomplete; in most cases "
    "only the paper's best point was run.",
)


def tables(sources: ReportContext) -> list[Table]:
    """No table without untuned runs."""
    table = no_search_table(sources.study)
    return [table] if len(table.data) else []


def no_search_table(study: ResultSet) -> Table:
    """The rows of `oso_dp.analysis.untuned_runs.win_ranges`."""
    data = win_ranges(study)
    printed = pd.DataFrame([_printed(row) for row in data.to_dict("records")])
    printed = printed.reindex(columns=range(len(_HEADINGS)))
    printed.columns = pd.MultiIndex.from_tuples(_HEADINGS)
    return Table("no_search", "Tuned and untuned runs under one budget", data, printed, _NOTES)


def _printed(row: dict[str, Any]) -> list[str]:
    point = labels.format_point(row["method"], *(row[f"best_{name}"] for name in labels.SYMBOLS))
    cells = [
        labels.dataset_short(row["dataset"]),
        str(row["k"]),
        labels.format_budget(row["epsilon"]),
        labels.variant_method_label(row["method"], row["variant"]),
        labels.format_number(row["noise_multiplier"], ".3f"),
        labels.format_mean_std(row["best_mean"], row["best_std"]),
        point,
        labels.format_number(row["own_noise_multiplier"], ".3f"),
        *_gap_to_search(row, "own"),
    ]
    online = (row["method"], row["variant"]) == ("online", "")  # whose own search it is
    return cells + ([labels.DASH] * 3 if online else _gap_to_search(row, "online"))


def _gap_to_search(row: dict[str, Any], searched: str) -> list[str]:
    """The search's best value, how many guesses beat it, and over how many decades."""
    if math.isnan(row[f"{searched}_mean"]):
        return [labels.DASH] * 3
    part = row[f"{searched}_points"] < row[f"{searched}_grid_size"]
    beat, surely, possibly = (int(row[f"{searched}_{how}"]) for how in VARIANTS)
    widths = []
    for axis in LOGARITHMIC:
        width, least, most = (row[f"{searched}_{axis}_decades_{how}"] for how in VARIANTS)
        if not math.isnan(width):
            widths.append(f"{labels.SYMBOLS[axis]} {width:.1f} ({least:.1f} to {most:.1f})")
    return [
        labels.format_mean_std(row[f"{searched}_mean"], row[f"{searched}_std"])
        + ("*" if part else ""),
        f"{beat} of {row['guesses']} ({surely} to {possibly})",
        ", ".join(widths) or labels.DASH,
    ]
