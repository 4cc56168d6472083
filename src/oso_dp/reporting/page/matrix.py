"""The verdict matrix of the page: method by epsilon, for each data set and k of the paper."""

from dataclasses import dataclass

import pandas as pd

from oso_dp import labels
from oso_dp.analysis import verdicts
from oso_dp.analysis.cells import DIVERGED, NOT_RUN
from oso_dp.paper.tables import DATASETS
from oso_dp.reporting.tables.cells import MARK, anchor

# verdict -> glyph and CSS class
GLYPHS = {
    verdicts.CONSISTENT: ("=", "yes"),
    verdicts.BETTER: ("+", "no"),
    verdicts.WORSE: ("−", "no"),
    verdicts.UNDECIDED: ("?", "open"),
    DIVERGED: ("×", "no"),
    verdicts.TRAINS: ("t", "no"),
    verdicts.SAME: ("=", "yes"),
    verdicts.AS_GOOD: ("≈", "yes"),
    verdicts.OTHER: ("≠", "no"),
    verdicts.INCOMPLETE: ("p", "open"),
    NOT_RUN: ("·", "idle"),
}
_MEANINGS = {
    verdicts.CONSISTENT: "consistent with the printed value",
    verdicts.BETTER: "better than printed",
    verdicts.WORSE: "worse than printed",
    DIVERGED: "all runs diverged",
    verdicts.TRAINS: "trains, where the paper's runs diverge",
    verdicts.SAME: "the same best point (k = 7 has no values)",
    verdicts.AS_GOOD: "another best point, as good",
    verdicts.OTHER: "another best point, better",
    verdicts.INCOMPLETE: "incomplete grid",
}


@dataclass(frozen=True)
class Cell:
    glyph: str  # with the number of seeds
    css_class: str
    hover: str
    link: str  # anchor of its evidence
    starts: bool  # whether it is the first of its k


@dataclass(frozen=True)
class Block:
    """One data set: its headings and a row for each method."""

    dataset: str
    ks: list[tuple[int, int]]  # k, and its number of columns
    epsilons: list[tuple[str, bool]]  # and whether it is the first of its k
    lines: list[tuple[str, list[Cell]]]


def make_blocks(matrix: pd.DataFrame) -> list[Block]:
    """`verdict_matrix` for the page, in the paper's order."""
    return [_block(dataset, matrix[matrix["dataset"] == dataset]) for dataset in DATASETS]


def _block(dataset: str, rows: pd.DataFrame) -> Block:
    columns = rows[["k", "epsilon"]].drop_duplicates().sort_values(["k", "epsilon"])
    starts = ~columns.duplicated("k")
    of_cell = rows.set_index(["method", "k", "epsilon"], drop=False).sort_index()
    lines = [
        (
            labels.method_label(method),
            [
                _cell(of_cell.loc[(method, column.k, column.epsilon)], start)
                for column, start in zip(columns.itertuples(), starts, strict=True)
            ],
        )
        for method in labels.sort_methods(rows["method"].unique())
    ]
    return Block(
        labels.dataset_short(dataset),
        [(int(k), len(same)) for k, same in columns.groupby("k")],
        [(labels.format_budget(e), s) for e, s in zip(columns["epsilon"], starts, strict=True)],
        lines,
    )


def _cell(row: pd.Series, starts: bool) -> Cell:
    glyph, css_class = GLYPHS[row["verdict"]]
    if not row["seeds"]:
        return Cell(glyph, css_class, row["verdict"], f"table_{row['table']:02d}", starts)
    hover = f"{row['verdict']}, {row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"
    if not pd.isna(row["difference"]):
        hover += f"; ours − paper {labels.format_signed(row['difference'])}"
    if not pd.isna(row["difference_half"]):
        hover += f" ± {row['difference_half']:.2f} {row['unit']}"
    mark = MARK if row["chose_momentum"] else ""
    return Cell(f"{glyph}{row['seeds']}{mark}", css_class, hover, anchor(row), starts)


def legend(matrix: pd.DataFrame) -> str:
    """The meaning of the glyphs that occur."""
    seen = [word for word in GLYPHS if word in set(matrix["verdict"])]
    parts = [f"{GLYPHS[word][0]} {_MEANINGS.get(word, word)}" for word in seen]
    return " ".join([f"{'; '.join(parts)}. The number is our number of seeds.", *momentum(matrix)])


def momentum(matrix: pd.DataFrame) -> list[str]:
    """The meaning of the mark on the momentum's calibration cell, if that was run."""
    if not matrix.loc[matrix["seeds"] > 0, "chose_momentum"].any():
        return []
    return [f"{MARK} The momentum was chosen to fit this cell: its agreement is not evidence."]
