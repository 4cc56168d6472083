"""Guess or search: what a run gives that has the whole budget to itself, beside a search's best."""

import math
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.guesses import HOW, LOGARITHMIC, ranges
from oso_dp.analysis.study import Study
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table

_OWN, _ONLINE = "the method's own search", "Online's search"
_HEADINGS = [
    *(("", name) for name in ("data set", "k", "ε", "method")),
    *(("one run without a search", name) for name in ("ν", "best guess", "at")),
    *((_OWN, name) for name in ("ν", "best", "guesses that beat it", "decades")),
    *((_ONLINE, name) for name in ("best", "guesses that beat it", "decades")),
]
_NOTES = (
    "A guess is a point of the grid whose run spends the whole budget alone, so that it has less "
    "noise than a run of a search. Values are means over seeds in the unit of the other tables. "
    "Guesses that beat a search: those whose mean is better than that of the searched grid's best "
    "point, of all guesses of the grid; in brackets, of how many the 95 % interval of the "
    "difference says so, and of how many it does not say the contrary.",
    "Decades: of the range of such guesses on a logarithmic axis, where each value of the grid "
    "stands for a stretch one step wide; in brackets by the same two counts. Where two "
    "hyperparameters are guessed, at the other one's best value.",
    "The best guess, and the search's best, are chosen on the test set, and the search is not "
    "charged for the choice of its ranges; who guesses has to do it before. Where its “best” "
    "is marked *, only a part of its grid was run, for the most part the paper's best point.",
)


def tables(sources: Sources) -> list[Table]:
    """None where nothing was run without a search."""
    table = no_search_table(sources.study)
    return [table] if len(table.data) else []


def no_search_table(study: Study) -> Table:
    """`ranges`, a row per cell."""
    data = ranges(study)
    printed = pd.DataFrame([_printed(row) for row in data.to_dict("records")])
    printed = printed.reindex(columns=range(len(_HEADINGS)))
    printed.columns = pd.MultiIndex.from_tuples(_HEADINGS)
    return Table("no_search", "Guess or search", data, printed, _NOTES)


def _printed(row: dict[str, Any]) -> list[str]:
    point = labels.point_text(row["method"], *(row[f"best_{name}"] for name in labels.SYMBOLS))
    cells = [
        labels.dataset_short(row["dataset"]),
        str(row["k"]),
        labels.epsilon_text(row["epsilon"]),
        labels.laid_label(row["method"], row["laid"]),
        labels.number(row["noise_multiplier"], ".3f"),
        labels.spread(row["best_mean"], row["best_std"]),
        point,
        labels.number(row["own_noise_multiplier"], ".3f"),
        *_beside(row, "own"),
    ]
    online = (row["method"], row["laid"]) == ("online", "")  # which is its own
    return cells + ([labels.NOTHING] * 3 if online else _beside(row, "online"))


def _beside(row: dict[str, Any], searched: str) -> list[str]:
    """The search's best, how many guesses beat it, and over how many decades."""
    if math.isnan(row[f"{searched}_mean"]):
        return [labels.NOTHING] * 3
    part = row[f"{searched}_points"] < row[f"{searched}_grid_size"]
    beat, surely, possibly = (int(row[f"{searched}_{how}"]) for how in HOW)
    widths = []
    for axis in LOGARITHMIC:
        width, least, most = (row[f"{searched}_{axis}_decades_{how}"] for how in HOW)
        if not math.isnan(width):
            widths.append(f"{labels.SYMBOLS[axis]} {width:.1f} ({least:.1f} to {most:.1f})")
    return [
        labels.spread(row[f"{searched}_mean"], row[f"{searched}_std"]) + ("*" if part else ""),
        f"{beat} of {row['guesses']} ({surely} to {possibly})",
        ", ".join(widths) or labels.NOTHING,
    ]
