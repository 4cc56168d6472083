"""What comes out of a search that is paid for whole, and of one that stops at random."""

import pandas as pd

from oso_dp import labels
from oso_dp.accounting.tuning import COMPOSITION, RANDOM_STOPPING
from oso_dp.analysis.keys import CELL
from oso_dp.analysis.random_stopping import distributions, outcomes
from oso_dp.analysis.study import Study
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table

_RULES = {COMPOSITION: "all N", RANDOM_STOPPING: "random stopping"}
_HEADINGS = [
    *("data set", "k", "ε", "method", "N"),
    *(column for heading in _RULES.values() for column in (f"ν, {heading}", heading)),
    *("luck", "grid points"),
]


def tables(sources: Sources) -> list[Table]:
    return [outcome_table(sources.study)]


def outcome_table(study: Study) -> Table:
    """`outcomes`, a row per cell, with both rules side by side."""
    data = outcomes(study)
    rows = []
    for _, pair in data.groupby(CELL, sort=False):
        at = {row["selection"]: row for row in pair.to_dict("records")}
        first = pair.iloc[0]
        cells = {
            "data set": labels.dataset_short(first["dataset"]),
            "k": str(first["k"]),
            "ε": labels.epsilon_text(first["epsilon"]),
            "method": labels.method_label(first["method"]),
            "N": labels.number(first["grid_size"], ".0f"),
        }
        for name, heading in _RULES.items():
            row = at.get(name, {})
            cells[f"ν, {heading}"] = labels.number(row.get("noise_multiplier"), ".3f")
            cells[heading] = labels.spread(row.get("value"), row.get("std"))
        stopped = at.get(RANDOM_STOPPING, {})
        cells["luck"] = labels.number(stopped.get("luck"), ".2f")
        cells["grid points"] = labels.number(stopped.get("points"), ".0f")
        rows.append(cells)
    notes = (
        "Values are in the unit of the other tables. All N: the grid's best point. Random "
        "stopping: the expected best of K points drawn with replacement, where K is "
        f"{distributions(data)} with a mean of N; ± is over seeds, luck the standard "
        "deviation over K and the draws. A dash stands where only a part of the grid was run, or "
        "where the noise is that of no known distribution.",
        "Computed from the stored runs of the grid's points, each with the noise that its rule "
        "asks for. A point drawn twice counts as one training, with its mean over seeds; a real "
        "search would train it anew and release the better one.",
    )
    return Table(
        "search_outcome",
        "What comes out of a search, by how it is accounted for",
        data,
        pd.DataFrame(rows, columns=_HEADINGS),
        notes if len(data) else ("Nothing was run under random stopping yet.",),
    )
