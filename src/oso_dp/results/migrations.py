"""Rows of older versions of the format: their options as columns, and what they did not state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.data.catalogue import DATASETS
from oso_dp.defaults import STOPPING_DISTRIBUTION
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.methods import find_method, method_names
from oso_dp.models import fitting_models
from oso_dp.results.schema import OLD_OPTIONS
from oso_dp.study.grid import default_grid_size
from oso_dp.study.identity import (
    BASIC_OPTIONS,
    OPTIONS,
    STORED_NAMES,
    USER_OPTIONS,
    format_method_options,
    format_trial_fractions,
    make_run_id,
)

_COLUMNS = {stored: name for name, stored in STORED_NAMES.items()}
_DECLARED = {"data_version", "public", "budget_runs"}  # of a user-defined data set


def migrate_runs(runs: pd.DataFrame, version: str) -> pd.DataFrame:
    """The runs with the columns of the current version; the names of columns are current.

    Before version 6 an example was the unit of privacy of every run.

    In version 1 all products were in float32, and batches and noise were drawn by the first scheme;
    the commit was not stored (code_hash was), and neither were the options: they are the defaults.
    Versions 2 to 4 had the options in one JSON text.

    OsoError for a run whose options are missing or not those of a run.
    """
    if version == "5":
        return runs.assign(**dict.fromkeys(USER_OPTIONS))
    if version == "1":
        runs = runs.assign(precision="float32", rng_version=1, commit=None)
        found = [_default_options(row) for row in runs.to_dict("records")]
    else:
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


def _default_options(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    """The default options; OsoError if the row's run had others."""
    known: dict[str, Any] = {
        str(name): None if pd.isna(value) else value for name, value in row.items()
    }
    needed = {"run_id", "dataset", "method", "k", "search_accounting", "seed", "learning_rate"}
    is_complete = None not in map(known.get, needed)
    if is_complete and known["dataset"] in DATASETS and known["method"] in method_names():
        data = DATASETS[known["dataset"]]
        options = {
            **dict.fromkeys(OPTIONS),
            "model": fitting_models([data.input_shape], data.metric)[0],
            "method_options": format_method_options(asdict(find_method(known["method"]).Options())),
            "grid_runs": default_grid_size(known["method"], known["k"]),
            "evaluate_every": 50,
            "final_activation": False,
            "loss": "mean",
            "oov_words": "zeros" if data.words else None,
            "randomness": "seeded",
            "stopping_distribution": None
            if known["search_accounting"] == COMPOSITION
            else STOPPING_DISTRIBUTION,
        }
        if make_run_id(known | options) == known["run_id"]:
            return options
    raise OsoError(f"run {known['run_id']}: its options are not stored and not the defaults")
