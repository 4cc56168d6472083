"""Rows of older versions of the format, with the columns of the current one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.results.schema import OLD_OPTIONS
from oso_dp.study.identity import (
    BASIC_OPTIONS,
    OPTIONS,
    STORED_NAMES,
    USER_OPTIONS,
    format_method_options,
    format_trial_fractions,
)

_COLUMNS = {stored: name for name, stored in STORED_NAMES.items()}
_DECLARED = {"data_version", "public", "budget_runs"}  # of a user-defined data set


def migrate_runs(runs: pd.DataFrame, version: str) -> pd.DataFrame:
    """The runs with the columns of the current version; the names of columns are current.

    Before version 6 an example was the unit of privacy of every run. Before version 5 the options
    were one JSON text.

    OsoError for a run whose options are missing or not those of a run.
    """
    if version == "5":
        return runs.assign(**dict.fromkeys(USER_OPTIONS))
    found = []
    for run_id, text in zip(runs["run_id"], runs[OLD_OPTIONS.name], strict=True):
        try:
            found.append(_parse_options(text))
        except (ValueError, TypeError, AttributeError):
            raise OsoError(
                f"run {run_id}: settings: {str(text)[:40]!r}; must be the options of a run"
            ) from None
    runs = runs.drop(columns=OLD_OPTIONS.name)
    return runs.join(pd.DataFrame(found, index=runs.index, columns=[*OPTIONS], dtype=object))


@cache
def _parse_options(text: str) -> Mapping[str, Any]:
    """The options from their JSON text.

    ValueError for missing ones, and for a declaration about the data that contradicts itself: the
    run would pass as one on public data.
    """
    stored = {_COLUMNS.get(name, name): value for name, value in parse_json(text).items()}
    if missing := {*BASIC_OPTIONS} - stored.keys():
        raise ValueError(missing)
    if _DECLARED & stored.keys():
        is_public = stored.get("budget_runs") is None
        is_named = isinstance(stored.get("data_version"), str)
        if not (is_named and stored.get("public") is is_public):
            raise ValueError("data_version, public, budget_runs")
    fractions = stored.get("trial_fractions")
    return {
        **{name: stored.get(name) for name in OPTIONS},
        "method_options": format_method_options(stored["method_options"]),
        "trial_fractions": None if fractions is None else format_trial_fractions(fractions),
    }
