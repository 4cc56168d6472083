"""Tables that a script writes: one CSV file, replaced at once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from oso_dp.files import atomic_write


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The columns are those of the last row; what a row lacks is empty."""
    table = pd.DataFrame(rows, columns=list(rows[-1]), dtype=object)
    with atomic_write(path) as file:
        file.write(table.to_csv(index=False, lineterminator="\n").encode())
