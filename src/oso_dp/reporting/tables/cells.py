"""Tables of cells: Tables 2 to 4 and 8 to 13 of the paper, other data sets, other methods.

k = 7: Table 2 (MNIST), Table 3 (Fashion-MNIST), Table 4 (AG News). k = 9: Table 8 (MNIST), Table 9
(Fashion-MNIST), Table 10 (AG News). k = 5: Table 11, Table 12, Table 13.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import (
    NOT_RUN,
    RAN,
    cell_key,
    contributing_runs,
    has_paper_length,
    list_panels,
)
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.values import CELL, COMPARABLE_ON, POINT, are_comparable, hidden_variants
from oso_dp.analysis.verdicts import (
    MOMENTUM_CALIBRATION_CELL,
    POINT_RULE,
    VALUE_RULE,
    Comparison,
    Sample,
    judge_cells,
    make_comparison,
)
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_higher_better
from oso_dp.paper.tables import (
    DATASETS,
    SEEDS,
    PaperTable,
    find_table,
    paper_results,
    paper_tables,
)
from oso_dp.reporting.table import (
    DATASET,
    EPSILON,
    METHOD,
    Column,
    K,
    ReportContext,
    Table,
    format_cells,
    mean_std,
    number,
)

RULE_NOTE = (
    "Selection as in the paper: each run's best test value over all evaluations, averaged over "
    "seeds, then the grid's best point. It uses the test set, so it is neither private nor "
    "unbiased. Other columns give the last evaluation, and cross-selection: checkpoint and point "
    "selected on one half of the test set and reported on the other, mean of both directions."
)
SEEDS_NOTE = f"The paper's values are means of {SEEDS} seeds; ours may have fewer."
MARK = "*"  # of the cell to which the momentum was fitted

_Row = Mapping[Any, Any]


def tables(context: ReportContext) -> list[Table]:
    """The paper's nine if any of its data sets was run, those of other data sets and k, and one of
    all cells that are not in the paper."""
    study = context.study
    in_paper = paper_tables() if set(study.datasets) & set(DATASETS) else []
    others = [panel for panel in list_panels(study) if find_table(*panel) is None]
    return [
        *(paper_table(study, table) for table in in_paper),
        *(cells_table(study, dataset, k) for dataset, k in others),
        *other_methods_table(study),
    ]


def anchor(row: _Row) -> str:
    """The anchor of a cell's row, such as `mnist-k9-eps3-online`."""
    dataset, k, epsilon, method = cell_key(row)
    budget = "none" if epsilon is None else f"eps{epsilon:g}"
    return f"{dataset}-k{k}-{budget}-{method}"


def tooltip(study: ResultSet, row: _Row) -> str:
    """The seeds and runs behind a cell's value; empty without runs."""
    lines = []
    for run in contributing_runs(study).get(cell_key(row), []):
        value = run["value"] * labels.display_factor(run["metric"])
        text = labels.format_number(value, ".2f")
        lines.append(f"seed {run['seed']}: {text} (run {run['run_id']})")
    return "\n".join(lines)


def _ours(row: _Row) -> str:
    if row["status"] != RAN:
        return row["status"]
    text = labels.format_mean_std(row["mean"], row["std"])
    if row["best_diverged"]:
        text += f" ({row['best_diverged']} of its {row['best_runs']} runs diverged)"
    return text


def _best_point(row: _Row) -> str:
    return labels.format_point(row["method"], *(row[name] for name in labels.SYMBOLS))


def _grid_points(row: _Row) -> str:
    size = "" if pd.isna(row["grid_size"]) else f" of {row['grid_size']}"
    if row["status"] == NOT_RUN:
        return f"0{size}"
    lost = f" ({row['diverged']} of {row['runs']} runs diverged)" if row["diverged"] else ""
    return f"{row['grid_points']}{size}{lost}"


_COUNTS = (
    Column("seeds", lambda row: labels.DASH if row["status"] == NOT_RUN else row["seeds"]),
    Column("grid points", _grid_points),
)
_OTHER_RULES = (
    Column("last step", mean_std("last_mean", "last_std")),
    Column("cross-selection", mean_std("cross_mean", "cross_std")),
)


def _our_columns(heading: str) -> tuple[Column, ...]:
    nu = Column("ν", "noise_multiplier", number(".3f"))
    return Column("our best", _best_point), Column(heading, _ours), *_COUNTS, nu


def _precision_note(data: pd.DataFrame) -> Iterator[str]:
    """A note if not all products were in float32; runs of two precisions are never averaged."""
    ran = data[data["status"] != NOT_RUN]
    if set(ran["precision"]) <= {"float32"}:
        return
    parts = []
    for precision, rows in ran.groupby("precision"):
        cells = [
            f"{labels.method_label(method)} at ε = "
            + ", ".join(labels.format_budget(epsilon) for epsilon in of_method["epsilon"])
            for method, of_method in rows.groupby("method", sort=False)
        ]
        parts.append(f"{precision}: {', '.join(cells)}")
    yield f"Products were computed in {'; in '.join(parts)}."


def variant_note(data: pd.DataFrame) -> str:
    """A sentence that lists variants with a schedule or averaging; empty without them."""
    names = [
        f"{labels.method_label(row['method'])} at ε = {labels.format_budget(row['epsilon'])} "
        f"({row['variant']})"
        for row in data[data["variant"] != ""].to_dict("records")
    ]
    return f"Variants with a schedule or averaging: {', '.join(names)}." if names else ""


def hidden_variants_note(points: pd.DataFrame) -> str:
    """A sentence about cells of which a variant is not shown; empty without them."""
    cells, differing = hidden_variants(points)
    if not cells:
        return ""
    where = f"{cells} cell{'s' * (cells > 1)}"
    return f"Not shown: other variants of {where}, with another {', '.join(differing)}."


def _panel_hidden_note(study: ResultSet, dataset: str, k: int) -> str:
    points = study.points
    return hidden_variants_note(points[(points["dataset"] == dataset) & (points["k"] == k)])


def cells_table(study: ResultSet, dataset: str, k: int) -> Table:
    """One row per cell of a data set and k that are not in the paper."""
    data = judge_cells(study, dataset, k)
    heading = f"ours, {data['unit'].iloc[0]}"
    printed = format_cells(data, (EPSILON, METHOD, *_our_columns(heading), *_OTHER_RULES))
    notes = (
        labels.DATASET_NOTES.get(dataset, ""),
        labels.format_epochs_note(data["epochs"]) if dataset in DATASETS else "",
        *_precision_note(data),
        _panel_hidden_note(study, dataset, k),
        RULE_NOTE,
    )
    rows = data.to_dict("records")
    return Table(
        f"{dataset}_k{k}",
        f"{labels.dataset_label(dataset)}, k = {k}: best on test",
        data,
        printed,
        tuple(filter(None, notes)),
        anchors={place: anchor(row) for place, row in enumerate(rows)},
        hovers=_hovers(study, data, printed.columns.get_loc(heading)),
    )


def _hovers(study: ResultSet, data: pd.DataFrame, column: int) -> dict[tuple[int, int], str]:
    rows = enumerate(data.to_dict("records"))
    return {(place, column): tooltip(study, row) for place, row in rows}


def paper_table(study: ResultSet, table: PaperTable) -> Table:
    """One of Tables 2-4 and 8-13 in its layout: three rows per epsilon, a column group per method.

    `data` has one row per cell, including NoDP's; `details` also.
    """
    data = judge_cells(study, table.dataset, table.k)
    data = data[data["in_paper"]].reset_index(drop=True)
    has_values = bool(data["paper_mean"].notna().any())
    notes = [
        *_momentum_note(data),
        "No cell of this table was run." if (data["status"] == NOT_RUN).all() else "",
        *map(_no_dp_note, data[data["epsilon"].isna()].to_dict("records")),
        *_precision_note(data),
        *_epsilons_note(table),
        *_reading_notes(data),
        labels.format_epochs_note(data["epochs"]),
        variant_note(data),
        _panel_hidden_note(study, table.dataset, table.k),
        "± in a verdict is half of the 95 % interval of ours − paper." if has_values else "",
        VALUE_RULE if has_values else POINT_RULE,
        RULE_NOTE,
        SEEDS_NOTE,
    ]
    private = data[data["epsilon"].notna()]
    return Table(
        f"table_{table.number:02d}",
        f"Table {table.number} of the paper and ours: {labels.dataset_label(table.dataset)}, "
        f"k = {table.k}",
        data,
        _paper_layout(private),
        tuple(filter(None, notes)),
        format_cells(data, _DETAILS),
        detail_anchors={place: anchor(row) for place, row in data.iterrows()},
        hovers=_paper_hovers(study, private),
    )


def _paper_layout(data: pd.DataFrame) -> pd.DataFrame:
    """Text cells: a column group per method (hyperparameters and value), three rows per epsilon.

    The rows are the paper's values, ours, and the verdict with the number of our seeds.
    """
    methods = labels.sort_methods(data["method"].unique())
    columns = [("", name) for name in ("ε", "")]
    for method in methods:
        symbols = [labels.SYMBOLS[name] for name in labels.searched_axes(method)]
        columns += [(labels.method_label(method), n) for n in (*symbols, data["unit"].iloc[0])]
    lines = []
    for epsilon, rows in data.groupby("epsilon"):
        cells = rows.set_index("method", drop=False)
        at = labels.format_budget(epsilon)
        block = [[at, "paper"], [at, "ours"], [at, "verdict (seeds)"]]
        for method in methods:
            cell, axes = cells.loc[method], labels.searched_axes(method)
            for line, prefix in zip(block, ("paper_", ""), strict=False):
                line += [labels.format_number(cell[prefix + name]) for name in axes]
                line.append(labels.format_mean_std(cell[f"{prefix}mean"], cell[f"{prefix}std"]))
            block[2] += [""] * len(axes) + [_verdict_with_seeds(cell)]
        lines += block
    return pd.DataFrame(lines, columns=pd.MultiIndex.from_tuples(columns))


def _paper_hovers(study: ResultSet, data: pd.DataFrame) -> dict[tuple[int, int], str]:
    """The tooltips of our values in `_paper_layout`."""
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


def _verdict(cell: _Row) -> str:
    """On the value, or where the paper prints none, on the point."""
    verdict = cell["verdict"]
    return cell["point_verdict"] if verdict == verdicts.NO_VALUE else verdict


def _verdict_with_seeds(cell: pd.Series) -> str:
    """For example `undecided (1 seed, ±2.77)`: our seeds, half of the difference's interval."""
    text = _verdict(cell)
    if cell["status"] != NOT_RUN:
        half = cell["difference_half"]
        text += f" ({cell['seeds']} seed{'' if cell['seeds'] == 1 else 's'}"
        text += f"{'' if pd.isna(half) else f', ±{half:.2f}'})"
    return text + (MARK if cell_key(cell) == MOMENTUM_CALIBRATION_CELL else "")


def _interval(row: _Row) -> str:
    mean, half = row["difference"], row["difference_half"]
    if pd.isna(half):
        return labels.format_signed(mean)
    low, high = (labels.format_signed(end) for end in (mean - half, mean + half))
    return f"{labels.format_signed(mean)} [{low}, {high}]"


_DETAILS = (
    *(EPSILON, METHOD),
    Column("verdict", _verdict),
    Column("ours − paper [95 %]", _interval),
    *_COUNTS,
    Column("ours at the paper's best", mean_std("at_paper_mean", "at_paper_std")),
    *_OTHER_RULES,
)


def _no_dp_note(row: _Row) -> str:
    paper_text = (
        f"NoDP: the paper's best is at ρ = {row['paper_learning_rate']:g}, without a value; "
    )
    if row["status"] != RAN:
        return paper_text + f"ours: {row['status']}."
    our_text = labels.format_mean_std(row["mean"], row["std"])
    return paper_text + f"ours is at ρ = {row['learning_rate']:.4g}: {our_text} {row['unit']}."


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


_ONLINE = ["mean", "std", "seeds", *COMPARABLE_ON, "variant", "grid_points", "grid_size"]
_KEPT = [
    *(*CELL, "metric", "unit", "status", *POINT, "mean", "std", "seeds", "runs", "diverged"),
    *("grid_points", "grid_size", "noise_multiplier", "epochs", "against_online", "verdict"),
    *("against_online_half", "last_mean", "last_std", "cross_mean", "cross_std"),
]
_OTHER_METHODS_COLUMNS = (
    *(DATASET, K),
    Column("epochs", "epochs", number()),
    *(EPSILON, METHOD),
    *_our_columns("ours"),
    Column(
        "against Online",
        lambda row: (
            labels.format_signed(row["against_online"])
            + (
                ""
                if math.isnan(row["against_online_half"])
                else f" ± {row['against_online_half']:.2f}"
            )
        ),
    ),
    Column("", "verdict"),
)


def other_methods_table(study: ResultSet) -> list[Table]:
    """The cells that were run but are not in the paper's tables, each compared with Online.

    Further methods, ablations, other k and budgets; on data sets that are not in the paper, which
    have separate tables, only further methods and ablations. Empty without such cells.
    """
    frames = []
    for dataset, k in list_panels(study):
        cells = judge_cells(study, dataset, k)
        further = ~cells["in_paper"]
        if dataset not in DATASETS:
            further &= ~cells["method"].isin(PAPER_METHODS)
        online = cells[(cells["method"] == "online") & (cells["status"] == RAN)]
        online = online[["epsilon", *_ONLINE]]
        if further.any():
            suffixes = ("", "_online")
            frames.append(cells[further].merge(online, "left", "epsilon", suffixes=suffixes))
    if not frames:
        return []
    data = pd.concat(frames, ignore_index=True)
    rows = data.to_dict("records")
    pairs = [_compare_with_online(row) for row in rows]
    judged = iter(verdicts.judge([pair for pair in pairs if pair is not None]))
    found = [labels.DASH if pair is None else next(judged) for pair in pairs]
    gaps = [
        None if pair is None else verdicts.difference([_samples(row)])
        for pair, row in zip(pairs, rows, strict=True)
    ]
    data = data.assign(
        against_online=data["mean"] - data["mean_online"],
        against_online_half=[math.nan if gap is None else gap.half for gap in gaps],
        verdict=[
            labels.DASH if _may_reverse(verdict, row) else verdict
            for verdict, row in zip(found, rows, strict=True)
        ],
    )
    printed = format_cells(data, _OTHER_METHODS_COLUMNS)
    notes = (
        "Values are in the unit of the other tables, which also give the other checkpoint rules.",
        "Budgets and grid ranges are the same; the paper has no such cells. “Against Online” is "
        "the difference to our Online at the same data set, k and ε, ± half of its 95 % interval; "
        "all cells of this table are judged together, by the rule of the verdicts. Runs shorter "
        "than the paper's, or of another precision, length or δ than Online's, are not judged. An "
        "incomplete grid is never judged worse, and never judged better than an incomplete grid of "
        "Online's: a point that was not run may be better.",
        "The noise multiplier depends on the size of the method's grid: a method that searches "
        "fewer hyperparameters trains with less noise.",
    )
    hovers = _hovers(study, data, printed.columns.get_loc("ours"))
    title = "Beyond the paper: further methods, ablations and budgets"
    return [Table("other_methods", title, data[_KEPT], printed, notes, hovers=hovers)]


def _samples(row: _Row) -> tuple[Sample, Sample]:
    """Of the cell and of Online's."""
    return Sample.of(row), Sample.of(row, "{}_online")


def _compare_with_online(row: _Row) -> Comparison | None:
    """None if not comparable.

    That is Online itself, a cell without a value on either side, runs that differ in precision,
    length or delta, and on the paper's data sets runs shorter than the paper's.
    """
    if (
        row["status"] != RAN
        or row["method"] == "online"
        or math.isnan(row["mean_online"])
        or row["variant_online"]
        or not are_comparable(row, {name: row[f"{name}_online"] for name in COMPARABLE_ON})
        or not has_paper_length(row["dataset"], row["epochs"])
    ):
        return None
    return make_comparison(row["dataset"], *_samples(row), is_higher_better(row["metric"]))


def _may_reverse(verdict: str, row: _Row) -> bool:
    """Whether points that were not run could reverse the verdict."""
    end = {verdicts.WORSE: "", verdicts.BETTER: "_online"}.get(verdict)
    if end is None:
        return False
    return verdicts.is_incomplete_grid(row, end)
