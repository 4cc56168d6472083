"""What a table is, and its formats Markdown, CSV and LaTeX.

A `TableSpec` has columns, each with a label, a source and a format, and makes a `Table` of rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.accounts import GridAccount
from oso_dp.analysis.result_set import ResultSet
from oso_dp.labels import DASH
from oso_dp.reporting.report_folder import ReportFolder

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ρ": r"$\rho$",
    "γ": r"$\gamma$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "ν": r"$\nu$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "₀": r"$_0$",
    "“": "``",
    "”": "''",
}


@dataclass(frozen=True)
class Table:
    """A table: `data` as CSV values, `printed` as formatted text cells, and notes.

    `printed` may have two levels of headings: groups of columns, and columns. The other fields are
    for the HTML page only: `details` has further text cells, `anchors` and `detail_anchors` name
    rows of `printed` and `details` for links, and `hovers` maps (row, column) of `printed` to a
    tooltip.
    """

    name: str  # file name without suffix
    title: str
    data: pd.DataFrame
    printed: pd.DataFrame
    notes: tuple[str, ...] = field(default=())
    details: pd.DataFrame | None = None
    anchors: Mapping[int, str] = field(default_factory=dict)
    detail_anchors: Mapping[int, str] = field(default_factory=dict)
    hovers: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportContext:
    """A study's results, with derived values that several tables and the page share."""

    study: ResultSet
    accounts: Sequence[GridAccount]
    claims: pd.DataFrame  # see `oso_dp.analysis.claims.judge_claims`
    pictures: Sequence[str]  # names of the drawn figures


def text(value: Any) -> str:
    """A cell as text; a dash for a missing value."""
    return DASH if pd.isna(value) else str(value)


@dataclass(frozen=True)
class Column:
    """A column of text cells."""

    label: str | tuple[str, str]  # two: the group of columns, and the column
    source: str | Callable[[dict[str, Any]], Any]  # a column of the rows, or a function of a row
    format: Callable[[Any], str] = text

    def cell(self, row: dict[str, Any]) -> str:
        value = row[self.source] if isinstance(self.source, str) else self.source(row)
        return self.format(value)


@dataclass(frozen=True)
class TableSpec:
    """A table without its rows."""

    name: str  # file name without suffix
    title: str
    columns: Sequence[Column]
    notes: Sequence[str] = ()

    def fill(self, data: pd.DataFrame, **page: Any) -> Table:
        """The table of these rows; page: further fields of `Table`, or other notes."""
        notes = tuple(page.pop("notes", self.notes))
        return Table(self.name, self.title, data, format_cells(data, self.columns), notes, **page)


def format_cells(data: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The text cells of the rows."""
    cells = [[column.cell(row) for column in columns] for row in data.to_dict("records")]
    names: list[Any] = [column.label for column in columns]
    grouped = any(isinstance(name, tuple) for name in names)
    pairs = [name if isinstance(name, tuple) else ("", name) for name in names]
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(pairs) if grouped else names)


def number(digits: str = ".4g") -> Callable[[Any], str]:
    """The format of a number; a dash if it is missing."""
    return partial(labels.format_number, digits=digits)


def mean_std(mean: str = "mean", std: str = "std") -> Callable[[dict[str, Any]], str]:
    """The source of a mean with its standard deviation."""
    return lambda row: labels.format_mean_std(row[mean], row[std])


DATASET = Column("data set", "dataset", labels.dataset_short)
K = Column("k", "k")
EPSILON = Column("ε", "epsilon", labels.format_budget)
METHOD = Column("method", lambda row: labels.variant_method_label(row["method"], row["variant"]))


def headings(printed: pd.DataFrame) -> list[list[tuple[str, int]]]:
    """The header lines, as pairs of a heading and the number of columns that it spans."""
    lines = []
    for level in range(printed.columns.nlevels):
        names = list(printed.columns.get_level_values(level))
        if level == printed.columns.nlevels - 1:  # single columns
            lines.append([(name, 1) for name in names])
        else:
            lines.append([(name, len(list(same))) for name, same in groupby(names)])
    return lines


def to_markdown(table: Table) -> str:
    """The table as Markdown; headings of two levels are joined into one line."""

    lines = [f"### {table.title}", "", *markdown_rows(table.printed)]
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def markdown_rows(printed: pd.DataFrame) -> list[str]:
    """The lines of a Markdown table."""

    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(text(c).replace("|", "\\|") for c in cells) + " |"

    names = [" ".join(c).strip() if isinstance(c, tuple) else c for c in printed.columns]
    rows = [line(row) for row in printed.itertuples(index=False)]
    return [line(names), "|" + "---|" * len(names), *rows]


def to_csv(table: Table) -> str:
    return table.data.to_csv(index=False, lineterminator="\n")


def to_latex(table: Table) -> str:
    """A `table` float; needs the packages booktabs and graphicx (to fit the line)."""

    def line(cells: Iterable[Any]) -> str:
        return " & ".join(latex(text(c)) for c in cells) + r" \\"

    def group(names: list[tuple[str, int]]) -> str:
        cells = (rf"\multicolumn{{{span}}}{{l}}{{{latex(name)}}}" for name, span in names)
        return " & ".join(cells) + r" \\"

    heads = headings(table.printed)
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex(table.title)}}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.printed.columns)}}}",
        r"\toprule",
        *[group(names) for names in heads[:-1]],
        line(name for name, _ in heads[-1]),
        r"\midrule",
        *[line(row) for row in table.printed.itertuples(index=False)],
        r"\bottomrule",
        r"\end{tabular}}",
        *[rf"\par\smallskip\footnotesize {latex(note)}" for note in table.notes],
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(value: str) -> str:
    """Text with LaTeX's special characters and the field's symbols escaped."""
    return "".join(_LATEX.get(character, character) for character in value)


def write_table(table: Table, folder: ReportFolder) -> None:
    """Write `tables/<name>.md`, `.csv` and `.tex`."""
    folder.write(f"tables/{table.name}.md", to_markdown(table))
    folder.write(f"tables/{table.name}.csv", to_csv(table))
    folder.write(f"tables/{table.name}.tex", to_latex(table))
