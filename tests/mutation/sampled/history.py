"""What became of each mutant: a table in the repository, `history.csv`.

function, content: whose code it changes, and that code's digest; mutant: its name; change: the line
before and after; outcome: killed, timeout (killed, too: the tests did not end), survived, or
equivalent, which is written by hand with its reason in `note`.
"""

import csv
import math
from collections.abc import Iterable
from pathlib import Path

HISTORY = Path(__file__).with_name("history.csv")
COLUMNS = ("function", "content", "mutant", "change", "outcome", "note")
OUTCOMES = ("killed", "timeout", "survived", "equivalent")
Row = dict[str, str]


def read(path: Path = HISTORY) -> dict[str, Row]:
    """Rows by the mutant's name; ValueError for one that says nothing known."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["outcome"] not in OUTCOMES or (row["outcome"] == "equivalent") > bool(row["note"]):
            raise ValueError(f"{path.name}: {row['mutant']}: {row['outcome']!r} {row['note']!r}")
    return {row["mutant"]: row for row in rows}


def write(rows: dict[str, Row], path: Path = HISTORY) -> None:
    ordered = sorted(rows.values(), key=lambda row: (row["function"], row["content"], row["change"],
                                                     row["mutant"]))  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


def score(rows: Iterable[Row]) -> tuple[int, int, int]:
    """Mutants that were killed, that survived, and that are equivalent."""
    outcomes = [row["outcome"] for row in rows]
    killed = sum(outcome in ("killed", "timeout") for outcome in outcomes)
    return killed, outcomes.count("survived"), outcomes.count("equivalent")


def interval(killed: int, survived: int) -> tuple[float, float]:
    """Wilson's 95 % interval for the share of killed ones."""
    n, z = killed + survived, 1.959964
    if n == 0:
        return 0.0, 1.0
    share = killed / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half
