"""The paper's numbers as tidy data: Table 1, 2-4 (k = 7), 8-10 (k = 9) and 11-13 (k = 5).

Means and standard deviations are in the printed unit: accuracy in percent, mean squared error
times 100. Tables 2-4 print hyperparameters only, and no table prints NoDP's value.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import StringIO

import pandas as pd

from oso_dp.data.catalogue import DATASETS as CATALOGUE
from oso_dp.paper.best_points import TABLES, all_points

SEEDS = 5  # each of the paper's values is a mean of five seeds
PAPER_EPOCHS = 10  # of each of its runs
DATASETS = tuple(name for name, spec in CATALOGUE.items() if spec.in_paper)

COLUMNS = [
    "table",
    "dataset",
    "k",
    "epsilon",
    "method",
    "learning_rate",
    "threshold",
    "quantile",
    "metric",
    "mean",
    "std",
    "diverged",  # the paper prints '-': no grid point trained
    "printed_epsilon",
    "printed_learning_rate",
    "printed_threshold",
    "printed_quantile",
    "note",
]


@dataclass(frozen=True)
class PaperTable:
    """Where the paper reports one data set at one k."""

    number: int
    figure: int
    dataset: str
    k: int
    metric: str


# The figure that plots each table's values.
_FIGURES = {2: 3, 3: 4, 4: 5, 8: 6, 9: 7, 10: 8, 11: 9, 12: 10, 13: 11}


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """The nine tables, in the paper's order."""
    where = {p.table: (p.dataset, p.k) for p in all_points()}
    return tuple(
        PaperTable(n, _FIGURES[n], dataset, k, CATALOGUE[dataset].metric)
        for n, (dataset, k) in ((n, where[n]) for n in TABLES)
    )


def find_table(dataset: str, k: int) -> PaperTable | None:
    """The paper's table on a data set at a k, or None."""
    return next((t for t in paper_tables() if (t.dataset, t.k) == (dataset, k)), None)


def _number(printed: str) -> float | None:
    return float(printed) if printed not in ("", "-") else None


def paper_results() -> pd.DataFrame:
    """One row per table, epsilon and method; columns `COLUMNS`, a missing number is NaN."""
    return _results().copy()


@cache
def _results() -> pd.DataFrame:
    metric = {t.number: t.metric for t in paper_tables()}
    rows = []
    for p in all_points():
        row = {name: getattr(p, name, None) for name in COLUMNS}
        row |= {"metric": metric[p.table], "diverged": not p.exists}
        rows.append(row | {"mean": _number(p.printed_mean), "std": _number(p.printed_std)})
    frame = pd.DataFrame(rows, columns=COLUMNS)
    numbers = ["epsilon", "learning_rate", "threshold", "quantile", "mean", "std"]
    return frame.astype(dict.fromkeys(numbers, "float64"))


def paper_setups() -> pd.DataFrame:
    """Table 1: dataset, examples, batch_size, parameters, in the paper's order."""
    return pd.read_csv(StringIO((files("oso_dp.paper") / "setups.csv").read_text("utf-8")))
