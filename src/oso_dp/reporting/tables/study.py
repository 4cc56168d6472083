"""What was run: Table 1 of the paper, the runs, the paper's figures, the checkpoint rules."""

from collections.abc import Iterable

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.cells import NOT_RUN, count_variants
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.selection_bias import GAIN_COLUMNS, comparable_cells, selection_bias
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.data.catalogue import DATASETS as CATALOGUE
from oso_dp.defaults import BATCH_SIZE
from oso_dp.methods import PAPER_METHODS
from oso_dp.metrics import is_higher_better
from oso_dp.models import MODELS, build_model, fitting_models, parameter_count
from oso_dp.paper.tables import DATASETS, paper_setups, paper_tables
from oso_dp.privacy.promise import USER
from oso_dp.reporting.table import (
    DATASET,
    EPSILON,
    Column,
    K,
    ReportContext,
    Table,
    TableSpec,
    format_cells,
    number,
)

QUANTITIES = {"examples": "Dataset Size", "batch_size": "Batch Size", "parameters": "Model Size"}


def tables(context: ReportContext) -> list[Table]:
    study = context.study
    found = [data_table(study), runs_table(study), rules_table(study)]
    paper = bool(set(study.datasets) & set(DATASETS))
    return [*found, *([figures_table(study, context.pictures)] if paper else [])]


def data_table(study: ResultSet) -> Table:
    """The paper's three data sets and all others that were run."""
    paper = paper_setups().set_index("dataset")
    datasets = [*paper.index, *(d for d in study.datasets if d not in paper.index)]
    rows = []
    for dataset in datasets:
        counted = _count(study, dataset)
        for quantity in QUANTITIES:
            printed, ours = paper[quantity].get(dataset), counted.get(quantity)
            rows.append(
                {
                    "dataset": dataset,
                    "quantity": quantity,
                    "paper": printed,
                    "ours": ours,
                    "verdict": _verdict(printed, ours),
                }
            )
        for part, fraction in study.known_words.get(dataset, {}).items():
            rows.append({"dataset": dataset, "quantity": f"known_words_{part}", "ours": fraction})
    data = pd.DataFrame(rows, columns=["dataset", "quantity", "paper", "ours", "verdict"])
    notes = [
        "“Ours” is computed: the training examples from the catalogue, the parameters from the "
        "networks that ran (without runs, the data set's), the batch size from the runs (without "
        "runs, from the configuration). Where users are protected, both sizes are in users."
    ]
    if any(study.known_words.values()):
        notes.append(
            "Words with a vector: fraction of the texts' words, up to the network's maximum "
            "length, that are in the vocabulary of the installed word vectors (the others are out "
            "of vocabulary)."
        )
    title = "Table 1 of the paper and ours: data sets and models"
    return Table("table_01", title, data, _datasets_as_columns(data, datasets), (*notes,))


def _count(study: ResultSet, dataset: str) -> dict[str, int | str]:
    """By quantity: a number, or a text for users and for several networks."""
    runs = study.runs[study.runs["dataset"] == dataset]
    info = CATALOGUE.get(dataset)
    counted: dict[str, int | str] = {}
    if (of_users := runs["unit"] == USER.name).any():
        counted["examples"] = f"{runs.loc[of_users, 'examples'].mode()[0]:.0f} {USER.plural}"
    else:
        counted["examples"] = info.examples if info else int(runs["examples"].mode()[0])
    counted["batch_size"] = int(runs["batch_size"].mode()[0]) if len(runs) else BATCH_SIZE
    models = [name for name in runs["model"].dropna().unique() if name in MODELS]
    if info is not None and not models:
        models = fitting_models([info.input_shape], info.metric)[:1]
    sizes = sorted(parameter_count(build_model(name)) for name in models)
    if sizes:
        counted["parameters"] = sizes[0] if len(sizes) == 1 else ", ".join(map(str, sizes))
    return counted


def _verdict(printed: float | None, counted: float | str | None) -> str | None:
    if printed is None or counted is None or isinstance(counted, str):
        return None
    difference = f"{counted - printed:+,.0f}".replace("-", "−")
    return "same" if counted == printed else f"differs by {difference}"


def _datasets_as_columns(data: pd.DataFrame, datasets: list[str]) -> pd.DataFrame:
    def cell(value: object) -> str:
        if isinstance(value, str) or labels.is_missing(value):
            return value if isinstance(value, str) else labels.DASH
        number = float(str(value))
        return f"{number:.0f}" if quantity in QUANTITIES else f"{100 * number:.1f} %"

    lines = []
    for quantity in data["quantity"].unique():
        cells = data[data["quantity"] == quantity].set_index("dataset")
        words = f"Words with a vector, {quantity.removeprefix('known_words_')}"
        sides = ("paper", "ours", "verdict") if quantity in QUANTITIES else ("ours",)
        for side in sides:
            heading = QUANTITIES.get(quantity, words) if side == sides[0] else ""
            values = {labels.dataset_short(d): cell(cells[side].get(d)) for d in datasets}
            lines.append({"": heading, " ": side} | values)
    return pd.DataFrame(lines)


_RUNS = TableSpec(
    "runs",
    "Runs",
    (
        *(DATASET, K, EPSILON),
        Column("method", "method", labels.method_label),
        Column(
            "grid points",
            lambda row: (
                f"{row['grid_points']}"
                + ("" if pd.isna(row["grid_size"]) else f" of {int(row['grid_size'])}")
            ),
        ),
        *(Column(name, name) for name in ("seeds", "runs", "diverged")),
        Column("search accounting", lambda row: row["search_accounting"].replace("_", " ")),
        Column("ν", "noise_multiplier", number(".3f")),
        Column("momentum", "momentum", number()),
        *(Column(name, name) for name in ("precision", "device")),
        Column("time", "wall_seconds", labels.format_duration),
    ),
    ("Time is summed over runs; runs that share a device overlap.",),
)


def runs_table(study: ResultSet) -> Table:
    """Counts of runs: one row per cell and variant."""
    private = ("Times of runs on private data are not stored: they depend on the data.",)
    notes = (*_RUNS.notes, *(private if study.shared_budgets else ()))
    return _RUNS.fill(count_variants(study), notes=notes)


_FIGURES = TableSpec(
    "figures",
    "The paper's figures",
    (
        *(Column(name, name) for name in ("figure", "what", "status")),
        Column(
            "cells run",
            lambda row: (
                labels.DASH if pd.isna(row["cells"]) else f"{row['cells_run']} of {row['cells']}"
            ),
        ),
        Column("runs", "runs", number(",.0f")),
        Column("file", "file"),
    ),
    ("A cell is a method at an ε. A figure without runs or printed values is not drawn.",),
)


def figures_table(study: ResultSet, pictures: Iterable[str]) -> Table:
    """One row per figure of the paper: what it shows, its file, its status, cells and runs."""
    drawn = set(pictures)
    rows = [
        _figure_row(
            1, "cosine of true and sanitized gradient over C", drawn, len(study.cosine) > 0
        ),
        _figure_row(2, "how two noisy sums share one privacy cost", drawn, "figure_02" in drawn),
    ]
    for table in sorted(paper_tables(), key=lambda table: table.figure):
        cells = judge_cells(study, table.dataset, table.k)
        cells = cells[cells["method"].isin(PAPER_METHODS) & cells["epsilon"].notna()]
        ran = cells[cells["status"] != NOT_RUN]
        about = f"{labels.dataset_short(table.dataset)}, k = {table.k}: metric over ε"
        row = _figure_row(table.figure, about, drawn, len(ran) > 0)
        row |= {"cells": len(cells), "cells_run": len(ran), "runs": int(ran["runs"].sum())}
        rows.append(row)
    counts = dict.fromkeys(("cells", "cells_run", "runs"), "Int64")
    return _FIGURES.fill(pd.DataFrame(rows).astype(counts))


def _figure_row(number: int, content: str, drawn: set[str], ran: bool) -> dict[str, object]:
    name = f"figure_{number:02d}"
    status = NOT_RUN if not ran else "drawn" if name in drawn else "run, without a value"
    if name in drawn and not ran:
        status = f"{NOT_RUN}: the paper's values only"
    file = f"figures/{name}.png" if name in drawn else None
    return {"figure": number, "what": content, "status": status, "file": file}


_RULES_COLUMNS = (
    DATASET,
    Column("method", "method", labels.method_label),
    Column("grids", "grids"),
    Column("in", "unit"),
    *(
        Column(label, name, number(".2f"))
        for label, name in zip(
            ("best on test", "last step", "cross-selection"), GAIN_COLUMNS, strict=True
        )
    ),
    Column("adds over last step", "adds_over_last", labels.format_signed),
    Column("adds over cross-selection", "adds_over_cross", labels.format_signed),
    Column("at most", "at_most", labels.format_signed),
)


def rules_table(study: ResultSet) -> Table:
    """Selection bias of the checkpoint rule: means per data set and method."""
    data = selection_bias(study)
    means = {name: (name, "mean") for name in (*GAIN_COLUMNS, "adds_over_last", "adds_over_cross")}
    groups = data.groupby(["dataset", "method"], sort=False).agg(
        grids=("unit", "size"), unit=("unit", "first"), at_most=("adds_over_cross", "max"), **means
    )
    order = [
        (dataset, method)
        for dataset in labels.sort_datasets(data["dataset"].unique())
        for method in labels.sort_methods(data["method"].unique())
        if (dataset, method) in groups.index
    ]
    return Table(
        "checkpoint_rules",
        "Selection bias of the checkpoint rule",
        data,
        format_cells(groups.loc[order].reset_index(), _RULES_COLUMNS),
        (
            "A row is the mean over the grids (k and ε) of a data set and method that have a value "
            "by all three rules. “Adds”: value under the paper's rule minus value under the other; "
            "positive means that the paper's rule reports a better value.",
            "Best on test: the paper's. Last step: each run's last checkpoint; the grid's point is "
            "still selected on the test set. Cross-selection: checkpoint and point are selected on "
            "one half of the test set and reported on the other; mean of both directions.",
        ),
    )


def rules_sentence(study: ResultSet) -> str:
    """How much the paper's rule adds, per unit, and in how many comparisons the winner changes.

    Only `comparable_cells` count.
    """
    data = selection_bias(study)
    if data.empty:
        return "No grid has a value by every checkpoint rule."
    parts = [
        f"{rows['adds_over_cross'].mean():.2f} {unit} over cross-selection and "
        f"{rows['adds_over_last'].mean():.2f} over the last step "
        f"(mean of {len(rows)} grid{'s' if len(rows) > 1 else ''})"
        for unit, rows in data.groupby("unit", sort=False)
    ]
    text = f"The paper's checkpoint rule adds {'; '.join(parts)}."
    contested = comparable_cells(study)
    if not contested:
        return text
    moved = sum(_winner(rows, "mean") != _winner(rows, "cross_mean") for rows in contested)
    return text + (
        f" By cross-selection another private method would be best in {moved} of {len(contested)} "
        f"comparison{'s' if len(contested) > 1 else ''} of complete grids at equal budgets."
    )


def _winner(rows: pd.DataFrame, column: str) -> str:
    higher = is_higher_better(rows["metric"].iloc[0])
    ranked = rows.sort_values([column, "method"], ascending=[not higher, True])
    return str(ranked["method"].iloc[0])
