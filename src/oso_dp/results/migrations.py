"""Rows of older versions of the format: what they did not say, as far as it can be known."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.files import parse_json
from oso_dp.methods import find_method, method_names
from oso_dp.study.data_options import make_data_options
from oso_dp.study.grid import default_grid_size
from oso_dp.study.identity import (
    DEFAULT_STOPPING_DISTRIBUTION,
    STORED_NAMES,
    format_run_options,
    make_run_id,
)

# The networks of rows from before `settings`.
_MODELS = {
    "mnist": "cnn",
    "fashion_mnist": "autoencoder",
    "ag_news": "bag_of_words",
    "ag_news_partial": "bag_of_words",
    "glyphs": "small_cnn",
}


_KEYS = {stored: name for name, stored in STORED_NAMES.items()}


def migrate_runs(runs: pd.DataFrame, version: str) -> pd.DataFrame:
    """The runs with the columns and keys of the current version; the columns' names are current.

    In version 1 all products were in float32, and batches and noise were drawn by the first scheme;
    the commit was not written down (code_hash was). `settings` are the defaults where these give
    the row's own run_id, else null.
    """
    if version != "1":
        return runs.assign(settings=runs["settings"].map(_rename_keys, na_action="ignore"))
    runs = runs.assign(precision="float32", rng_version=1, commit=None)
    rows = [_nulls_as_none(row) for row in runs.to_dict("records")]
    runs["settings"] = pd.Series([_settings(row) for row in rows], index=runs.index, dtype=object)
    return runs


@cache
def _rename_keys(settings: str) -> str:
    """The JSON text with today's keys for those of versions before 4."""
    values = parse_json(settings)
    return json.dumps({_KEYS.get(key, key): values[key] for key in values}, sort_keys=True)


def _nulls_as_none(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def _settings(row: dict[str, Any]) -> str | None:
    known = {"run_id", "dataset", "method", "k", "search_accounting", "seed", "learning_rate"}
    model = _MODELS.get(row["dataset"])
    if model is None or row["method"] not in method_names() or None in map(row.get, known):
        return None
    settings = {
        "settings": asdict(find_method(row["method"]).Options()),
        "model": model,
        "grid_runs": default_grid_size(row["method"], row["k"]),
        "evaluate_every": 50,
        "final_activation": False,
        "loss": "mean",
        **make_data_options(model, "zeros"),
        "randomness": "seeded",
        "stopping_distribution": None
        if row["search_accounting"] == COMPOSITION
        else DEFAULT_STOPPING_DISTRIBUTION,
    }
    return format_run_options(settings) if make_run_id(row, settings) == row["run_id"] else None
