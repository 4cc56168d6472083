"""Rows on a user's own data that are not declared public: what they say of it, and may say."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.files import parse_json
from oso_dp.methods import find_method, method_names


def protected(runs: pd.DataFrame) -> pd.Series:
    """Of each row of the table `runs` whether its `settings` say that the data are not public."""
    texts = runs["settings"]
    known = {text: budget_runs(parse_json(text)) is not None for text in texts.dropna().unique()}
    return texts.map(known).astype(object).fillna(False).astype(bool)


def budget_runs(said: Mapping[str, Any]) -> int | None:
    """How many runs share one epsilon, as `settings` say; None where each grid has its own."""
    number: int | None = said.get("budget_runs")
    return number


def shared_budgets(runs: pd.DataFrame) -> dict[str, int]:
    """Of each data set that is not public, how many runs its epsilon pays for."""
    rows = runs[protected(runs)].drop_duplicates(["dataset", "settings"])
    sizes: dict[str, int] = {}
    for dataset, text in zip(rows["dataset"], rows["settings"], strict=True):
        sizes[dataset] = max(sizes.get(dataset, 0), budget_runs(parse_json(text)) or 0)
    return sizes


def are_sound(said: Mapping[str, Any]) -> bool:
    """Whether what `settings` say of a user's own data agrees with itself."""
    if not {"public", "budget_runs", "data_version"} & said.keys():
        return True
    number = said.get("budget_runs")
    counted = type(number) is int and number > 0
    alike = said.get("public") is (number is None) and isinstance(said.get("data_version"), str)
    covered = "grid_runs" in said  # without it, no identity covers what they say
    return alike and covered and (counted or number is None)


def complaints(row: Mapping[str, Any]) -> Iterator[str]:
    """What a row on protected data says that no study of them may do; settings: sound ones."""
    said = {} if pd.isna(row["settings"]) else parse_json(row["settings"])
    if budget_runs(said) is None:
        return
    where = f"but the data of {row['dataset']} are not declared public"
    if row["method"] in method_names() and not find_method(row["method"]).is_private:
        yield f"method {row['method']} protects nobody, {where}"
    if said.get("randomness") != "system":
        yield f"randomness {said.get('randomness')}, {where}"
    if row["search_accounting"] != COMPOSITION:
        yield f"search_accounting {row['search_accounting']}, {where}"
