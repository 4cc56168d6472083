"""Table 1: data sets and models, with our counts."""

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.data.catalogue import DATASETS
from oso_dp.models import build_model, fitting_models, parameter_count
from oso_dp.paper.tables import paper_setups
from oso_dp.reporting.context import ReportContext
from oso_dp.reporting.table_format import Table
from oso_dp.study.config import StudyConfig

QUANTITIES = {"examples": "Dataset Size", "batch_size": "Batch Size", "parameters": "Model Size"}

_NOTES = (
    "“Ours” is computed: the training examples from the catalogue, the parameters from the data "
    "set's network, the batch size from the runs (without runs, from the configuration).",
)
_WORDS_NOTE = (
    "Words with a vector: fraction of the texts' words, up to the network's maximum length, that "
    "are in the vocabulary of the installed word vectors (the others are out of vocabulary)."
)


def tables(sources: ReportContext) -> list[Table]:
    return [data_table(sources.study)]


def data_table(study: ResultSet) -> Table:
    """The paper's three data sets and all others that were run."""
    paper = paper_setups().set_index("dataset")
    datasets = [*paper.index, *(d for d in study.datasets if d not in paper.index)]
    rows = []
    for dataset in datasets:
        counted = _counted(study, dataset)
        for quantity in QUANTITIES:
            paper_count = paper[quantity].get(dataset)
            rows.append(
                {
                    "dataset": dataset,
                    "quantity": quantity,
                    "paper": paper_count,
                    "ours": counted.get(quantity),
                    "verdict": _verdict(paper_count, counted.get(quantity)),
                }
            )
        for part, fraction in study.known_words.get(dataset, {}).items():
            rows.append({"dataset": dataset, "quantity": f"known_words_{part}", "ours": fraction})
    data = pd.DataFrame(rows, columns=["dataset", "quantity", "paper", "ours", "verdict"])
    printed = pd.DataFrame(_lines(data, datasets))
    notes = (*_NOTES, *([_WORDS_NOTE] if any(study.known_words.values()) else []))
    title = "Table 1 of the paper and ours: data sets and models"
    return Table("table_01", title, data, printed, notes)


def _counted(study: ResultSet, dataset: str) -> dict[str, int]:
    info = DATASETS.get(dataset)
    if info is None:
        rows = study.runs.loc[study.runs["dataset"] == dataset, ["examples", "batch_size"]]
        return {name: int(column.mode()[0]) for name, column in rows.items()}
    model = fitting_models([info.input_shape], info.metric)[0]
    used = study.runs.loc[study.runs["dataset"] == dataset, "batch_size"]
    default = StudyConfig.model_fields["batch_size"].default
    return {
        "examples": info.examples,
        "batch_size": int(used.mode()[0]) if len(used) else default,
        "parameters": parameter_count(build_model(model)),
    }


def _verdict(paper_count: float | None, counted: int | None) -> str | None:
    if paper_count is None or counted is None:
        return None
    return (
        "same"
        if counted == paper_count
        else f"differs by {counted - paper_count:+,.0f}".replace("-", "−")
    )


def _lines(data: pd.DataFrame, datasets: list[str]) -> list[dict[str, str]]:
    lines = []
    for quantity in data["quantity"].unique():
        cells = data[data["quantity"] == quantity].set_index("dataset")
        sides = ("paper", "ours", "verdict") if quantity in QUANTITIES else ("ours",)
        for side in sides:
            row = {"": _heading(quantity) if side == sides[0] else "", " ": side}
            for dataset in datasets:
                value = cells[side].get(dataset)
                row[labels.dataset_short(dataset)] = _text(value, quantity)
            lines.append(row)
    return lines


def _heading(quantity: str) -> str:
    if quantity in QUANTITIES:
        return QUANTITIES[quantity]
    return f"Words with a vector, {quantity.removeprefix('known_words_')}"


def _text(value: object, quantity: str) -> str:
    if isinstance(value, str):
        return value
    if labels.is_missing(value):
        return labels.DASH
    number = float(str(value))
    return f"{number:.0f}" if quantity in QUANTITIES else f"{100 * number:.1f} %"
