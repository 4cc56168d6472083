"""The page's sections, one per data set and k, and the paper's tables without runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oso_dp import labels
from oso_dp.analysis.cells import has_paper_length, list_panels
from oso_dp.analysis.result_set import ResultSet
from oso_dp.analysis.verdicts import judge_cells
from oso_dp.paper.tables import PaperTable, find_table, paper_tables
from oso_dp.reporting.figures.figure_spec import WrittenFigure
from oso_dp.reporting.page.summary_text import best_method_text
from oso_dp.reporting.table_format import Table

# Display name of each kind of figure.
_KINDS = {
    "beyond": "further methods",
    "grid": "the complete grid",
    "curves": "learning curves",
    "threshold": "C over the steps",
    "learning_rate": "ρ over the steps",
}


@dataclass(frozen=True)
class Section:
    """A data set at a k: its table, the visible figures and the folded ones."""

    id: str
    heading: str
    table: Table
    best: str | None
    first: list[WrittenFigure]
    rest: list[WrittenFigure]
    is_complete: bool  # whether any of its runs are as long as the paper's
    notes: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> str:
        """The kinds of the folded figures."""
        return ", ".join(dict.fromkeys(_KINDS.get(p.kind, p.kind) for p in self.rest))


@dataclass(frozen=True)
class MissingTable:
    """A table of the paper without runs."""

    table: Table
    short: str
    pictures: list[WrittenFigure]


def make_sections(
    study: ResultSet, tables: Mapping[str, Table], pictures: list[WrittenFigure]
) -> list[Section]:
    """One section per data set and k that was run."""
    sections = []
    noted = set()
    for dataset, k in list_panels(study):
        reference = find_table(dataset, k)
        cells = judge_cells(study, dataset, k)
        ran = cells[cells["status"] != "not run"]
        whole = any(has_paper_length(dataset, epochs) for epochs in ran["epochs"])
        drawn = [p for p in pictures if (p.dataset, p.k) == (dataset, k) and p.measured]
        note = labels.DATASET_NOTES.get(dataset)
        sections.append(
            Section(
                f"{dataset}-k{k}",
                f"{labels.dataset_label(dataset)}, k = {k}",
                tables[display_name(reference) if reference else f"{dataset}_k{k}"],
                best_method_text(cells[cells["in_paper"] | (reference is None)]),
                [p for p in drawn if p.kind == "metric"],
                [p for p in drawn if p.kind != "metric"],
                whole,
                [note] if note and dataset not in noted else [],
            )
        )
        noted.add(dataset)
    return sections


def find_missing_tables(
    tables: Mapping[str, Table], run: set[str], pictures: list[WrittenFigure]
) -> list[MissingTable]:
    """The paper's tables without a section; run: names of the tables with one."""
    printed = [p for p in pictures if not p.measured]
    left = [t for t in paper_tables() if display_name(t) in tables and display_name(t) not in run]
    return [
        MissingTable(
            tables[display_name(table)],
            f"Table {table.number} ({labels.dataset_short(table.dataset)}, k = {table.k})",
            [p for p in printed if (p.dataset, p.k) == (table.dataset, table.k)],
        )
        for table in left
    ]


def display_name(table: PaperTable) -> str:
    return f"table_{table.number:02d}"
