"""A table as Markdown, CSV and LaTeX."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from oso.reporting.files import ReportFolder
from oso.reporting.labels import NOTHING

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
}


@dataclass(frozen=True)
class Table:
    """One table twice: `data` for machines (CSV), `shown` for people (text cells), and notes."""

    name: str  # file name without its ending
    title: str
    data: pd.DataFrame
    shown: pd.DataFrame
    notes: tuple[str, ...] = field(default=())


def text(value: Any) -> str:
    """A cell as text; a missing value is a dash."""
    return NOTHING if pd.isna(value) else str(value)


def to_markdown(table: Table) -> str:
    def line(cells: Iterable[Any]) -> str:
        return "| " + " | ".join(text(c).replace("|", "\\|") for c in cells) + " |"

    lines = [f"### {table.title}", "", line(table.shown.columns)]
    lines.append("|" + "---|" * len(table.shown.columns))
    lines += [line(row) for row in table.shown.itertuples(index=False)]
    lines += [f"\n{note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    return table.data.to_csv(index=False, lineterminator="\n")


def to_latex(table: Table) -> str:
    """A `table` float; needs the packages booktabs and graphicx (to fit the line)."""

    def line(cells: Iterable[Any]) -> str:
        return " & ".join(latex(text(c)) for c in cells) + r" \\"

    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex(table.title)}}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.shown.columns)}}}",
        r"\toprule",
        line(table.shown.columns),
        r"\midrule",
        *[line(row) for row in table.shown.itertuples(index=False)],
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
