"""Tables of data sets, or values of k, that are not in the paper."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cells import list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.paper.tables import (
    DATASETS,
    find_table,
)
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table
from oso_dp.reporting.tables.cells import (
    RULE_NOTE,
    anchor,
    method_columns,
    other_rule_columns,
    our_columns,
    precision_note,
    tooltip,
)


def tables(sources: ReportContext) -> list[Table]:
    return [
        cells_table(sources.study, dataset, k)
        for dataset, k in list_panels(sources.study)
        if find_table(dataset, k) is None
    ]


def cells_table(study: ResultSet, dataset: str, k: int) -> Table:
    """One row per cell of a data set and k that are not in the paper."""
    data = judge_cells(study, dataset, k)
    rows = pd.DataFrame(
        [
            method_columns(row) | our_columns(row, f"ours, {row['unit']}") | other_rule_columns(row)
            for _, row in data.iterrows()
        ]
    )
    title = f"{labels.dataset_label(dataset)}, k = {k}: best on test"
    notes = (
        labels.DATASET_NOTES.get(dataset, ""),
        labels.format_epochs_note(data["epochs"]) if dataset in DATASETS else "",
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
            (place, column): tooltip(study, row)
            for place, row in enumerate(data.to_dict("records"))
        },
    )
