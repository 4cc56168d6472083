"""Tables 2 to 4 and 8 to 13 of the paper beside ours, in the paper's layout.

k = 7: Table 2 (MNIST), Table 3 (Fashion-MNIST), Table 4 (AG News). k = 9: Table 8 (MNIST), Table 9
(Fashion-MNIST), Table 10 (AG News). k = 5: Table 11, Table 12, Table 13.
"""

from collections.abc import Iterator

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import cell_key
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import MOMENTUM_CALIBRATION_CELL, POINT_RULE, VALUE_RULE, judge_cells
from oso_dp.paper.tables import (
    DATASETS,
    PaperTable,
    paper_results,
    paper_tables,
)
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table
from oso_dp.reporting.tables.cells import (
    MARK,
    RULE_NOTE,
    SEEDS_NOTE,
    anchor,
    count_columns,
    method_columns,
    other_rule_columns,
    precision_note,
    tooltip,
    variant_note,
    verdict_text,
)


def tables(sources: ReportContext) -> list[Table]:
    """All nine, if any of the paper's data sets was run."""
    study = sources.study
    if not set(study.datasets) & set(DATASETS):
        return []
    return [paper_table(study, table) for table in paper_tables()]


def paper_table(study: ResultSet, table: PaperTable) -> Table:
    """One of Tables 2-4 and 8-13 in its layout: three rows per epsilon, a column group per method.

    `data` has one row per cell, including NoDP's; `details` also.
    """
    data = judge_cells(study, table.dataset, table.k)
    data = data[data["in_paper"]].reset_index(drop=True)
    printed = bool(data["paper_mean"].notna().any())
    title = (
        f"Table {table.number} of the paper and ours: {labels.dataset_label(table.dataset)}, "
        f"k = {table.k}"
    )
    notes = [
        *_momentum_note(data),
        *(["No cell of this table was run."] if (data["status"] == "not run").all() else []),
        *(_no_dp_note(row) for _, row in data[data["epsilon"].isna()].iterrows()),
        *precision_note(data),
        *_epsilons_note(table),
        *_reading_notes(data),
        *filter(None, [labels.format_epochs_note(data["epochs"])]),
        *filter(None, [variant_note(data)]),
        *(["± in a verdict is half of the 95 % interval of ours − paper."] if printed else []),
        VALUE_RULE if printed else POINT_RULE,
        RULE_NOTE,
        SEEDS_NOTE,
    ]
    details = pd.DataFrame([_details(row) for _, row in data.iterrows()])
    private = data[data["epsilon"].notna()]
    return Table(
        f"table_{table.number:02d}",
        title,
        data,
        _layout(private),
        tuple(notes),
        details,
        detail_anchors={place: anchor(row) for place, row in data.iterrows()},
        hovers=_hovers(study, private),
    )


def _layout(data: pd.DataFrame) -> pd.DataFrame:
    """Text cells: a column group per method (hyperparameters and value), three rows per epsilon.

    The rows are the paper's values, ours, and the verdict with the number of our seeds.
    """
    methods = labels.sort_methods(data["method"].unique())
    unit = data["unit"].iloc[0]
    head = ["ε", ""]
    columns = [("", name) for name in head]
    for method in methods:
        names = [*(labels.SYMBOLS[n] for n in labels.searched_axes(method)), unit]
        columns += [(labels.method_label(method), name) for name in names]
    lines = []
    for epsilon, rows in data.groupby("epsilon"):
        cells = rows.set_index("method", drop=False)
        at = labels.format_budget(epsilon)
        first, second, third = [at, "paper"], [at, "ours"], [at, "verdict (seeds)"]
        for method in methods:
            cell = cells.loc[method]
            first += _line(cell, "paper_")
            second += _line(cell, "")
            third += [""] * len(labels.searched_axes(method)) + [_verdict(cell)]
        lines += [first, second, third]
    return pd.DataFrame(lines, columns=pd.MultiIndex.from_tuples(columns))


def _hovers(study: ResultSet, data: pd.DataFrame) -> dict[tuple[int, int], str]:
    """The tooltips of our values in `_layout`."""
    methods = labels.sort_methods(data["method"].unique())
    hovers = {}
    for block, (_, rows) in enumerate(data.groupby("epsilon")):
        cells = rows.set_index("method", drop=False)
        column = 1  # after epsilon and the row's name
        for method in methods:
            column += len(labels.searched_axes(method)) + 1
            if text := tooltip(study, cells.loc[method]):
                hovers[3 * block + 1, column] = text
    return hovers


def _line(cell: pd.Series, prefix: str) -> list[str]:
    values = [labels.format_number(cell[prefix + name]) for name in labels.searched_axes(cell.name)]
    return [*values, labels.format_mean_std(cell[f"{prefix}mean"], cell[f"{prefix}std"])]


def _verdict(cell: pd.Series) -> str:
    verdict = cell["verdict"]
    if verdict == verdicts.NO_VALUE:
        verdict = cell["point_verdict"]
    return verdict_text(cell, verdict) + (
        MARK if cell_key(cell) == MOMENTUM_CALIBRATION_CELL else ""
    )


def _no_dp_note(row: pd.Series) -> str:
    paper_text = (
        f"NoDP: the paper's best is at ρ = {row['paper_learning_rate']:g}, without a value; "
    )
    if row["status"] != "run":
        return paper_text + f"ours: {row['status']}."
    our_text = labels.format_mean_std(row["mean"], row["std"])
    return paper_text + f"ours is at ρ = {row['learning_rate']:.4g}: {our_text} {row['unit']}."


def _interval(row: pd.Series) -> str:
    mean, half = row["difference"], row["difference_half"]
    if pd.isna(half):
        return labels.format_signed(mean)
    low, high = (labels.format_signed(end) for end in (mean - half, mean + half))
    return f"{labels.format_signed(mean)} [{low}, {high}]"


def _momentum_note(data: pd.DataFrame) -> Iterator[str]:
    """A note on the cell to which the momentum was fitted: its agreement is not evidence."""
    for row in data.dropna(subset="epsilon").to_dict("records"):
        if cell_key(row) == MOMENTUM_CALIBRATION_CELL:
            yield (
                f"{labels.method_label(row['method'])} at ε = {row['epsilon']:g}{MARK}: the "
                "momentum, which the paper does not give, was chosen to fit this cell. Its "
                "agreement is not evidence."
            )


def _epsilons_note(table: PaperTable) -> Iterator[str]:
    """A note if the budgets are not the printed ones."""
    paper = paper_results().dropna(subset="epsilon")
    budgets = paper[paper["table"] == table.number].groupby("epsilon")["printed_epsilon"].first()
    meant = [f"{epsilon:g}" for epsilon in budgets.index]
    if meant != budgets.tolist():
        yield (
            f"The paper prints ε = {', '.join(budgets)} here, and 1 to 4 in Tables 3 and 9. The "
            f"values are those of ε = {', '.join(meant)}: as printed, AdamWOSM would have twice "
            "the error that Table 9's larger grid has at the same noise (ambiguity 10)."
        )


def _reading_notes(data: pd.DataFrame) -> list[str]:
    """One note per interpretation that differs from the printed text, methods joined."""
    noted = data[data["paper_note"].fillna("") != ""]
    lines = []
    for (method, note), rows in noted.groupby(["method", "paper_note"], sort=False):
        at = ", ".join(labels.format_budget(e) for e in rows["epsilon"])
        lines.append(f"{labels.method_label(method)}, ε = {at}: {note}.")
    return lines


def _details(row: pd.Series) -> dict[str, str]:
    """One row with the details of a cell of the paper."""
    verdict = row["verdict"]
    if verdict == verdicts.NO_VALUE:
        verdict = row["point_verdict"]
    return {
        **method_columns(row),
        "verdict": verdict,
        "ours − paper [95 %]": _interval(row),
        **count_columns(row),
        "ours at the paper's best": labels.format_mean_std(
            row["at_paper_mean"], row["at_paper_std"]
        ),
        **other_rule_columns(row),
    }
