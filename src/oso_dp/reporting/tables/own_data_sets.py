"""A table for each data set, or k of one, that the paper does not have."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cell_verdicts import judged_cells
from oso_dp.analysis.cells import settings
from oso_dp.analysis.study import Study
from oso_dp.paper.tables import (
    DATASETS,
    find_table,
)
from oso_dp.reporting.sources import Sources
from oso_dp.reporting.table import Table
from oso_dp.reporting.tables.cells import (
    RULE_NOTE,
    anchor,
    hover,
    name,
    other_rules,
    own,
    precision_note,
)


def tables(sources: Sources) -> list[Table]:
    return [
        cells_table(sources.study, dataset, k)
        for dataset, k in settings(sources.study)
        if find_table(dataset, k) is None
    ]


def cells_table(study: Study, dataset: str, k: int) -> Table:
    """A data set, or a k of one, that the paper does not have: a line per cell."""
    data = judged_cells(study, dataset, k)
    rows = pd.DataFrame(
        [
            name(row) | own(row, f"ours, {row['unit']}") | other_rules(row)
            for _, row in data.iterrows()
        ]
    )
    title = f"{labels.dataset_label(dataset)}, k = {k}: best on test"
    notes = (
        labels.DATASET_NOTES.get(dataset, ""),
        labels.epochs_note(data["epochs"]) if dataset in DATASETS else "",
        *precision_note(data),
        RULE_NOTE,
    )
    column = rows.columns.get_loc(f"ours, {data['unit'].iloc[0]}")
    return Table(
        f"{dataset}_k{k}",
        title,
        data,
        rows,
        tuple(n for n in notes if n),
        anchors={place: anchor(row) for place, row in enumerate(data.to_dict("records"))},
        hovers={
            (place, column): hover(study, row) for place, row in enumerate(data.to_dict("records"))
        },
    )
