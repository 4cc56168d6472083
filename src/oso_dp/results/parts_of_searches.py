"""Rows of a search in parts: whether each says which part it is, and of what."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import LINEAR_SCALING
from oso_dp.accounting.trial_fractions import find_stage_error
from oso_dp.files import parse_json


def complaints(row: Mapping[str, Any]) -> Iterator[str]:
    """What a row says of a search in parts that no study of one does; settings: sound ones.

    Without it nobody could say what the search cost: so the size of its grid has to be there, too.
    """
    said = {} if pd.isna(row["settings"]) else parse_json(row["settings"])
    wrong = find_stage_error(
        row["search_accounting"], said.get("part"), said.get("trial_fractions")
    )
    if wrong:
        yield f"settings: {wrong}"
    elif row["search_accounting"] == LINEAR_SCALING and "grid_runs" not in said:
        yield "settings: grid_runs is missing"
