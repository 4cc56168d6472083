"""What a stored run says of itself, held against its ledger, its data set and the plan.

What each value may be by itself: `oso_dp.results.column_rules`.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd

from oso_dp.accounting.search_accounting import SEARCH_ACCOUNTINGS
from oso_dp.accounting.tuning_cost import STOPPING_ETA
from oso_dp.data.catalogue import DATASETS
from oso_dp.errors import OsoError
from oso_dp.files import parse_json
from oso_dp.methods import find_method, method_names
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.noise_composition import combined_noise_multiplier
from oso_dp.privacy.sampling import count_steps
from oso_dp.results import parts_of_searches, protected
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.identity import POINT, make_run_id

Row = dict[str, Any]
_NEEDED = (
    *("run_id", "dataset", "method", "k", "seed", "learning_rate", "search_accounting"),
    *("examples", "batch_size", "epochs", "steps", "status"),
)


# What a claim rests on: of rows that are alike in these, one is looked at for all.
_CLAIM = [
    *("dataset", "method", "epsilon", "delta", "search_accounting"),
    *("noise_multiplier", "query_noise_multiplier", "ledger"),
    *("examples", "batch_size", "epochs", "steps", "status", "diverged_at"),
]


def complaint(runs: pd.DataFrame) -> str | None:
    """The first row of the table `runs` with values that no training of this project writes.

    Named by its run. None if there is none.
    """
    for name in _NEEDED:
        missing = runs[name].isna()
        if missing.any():
            return f"run {runs.loc[missing, 'run_id'].iloc[0]}: {name} is missing"
    for row in runs[["run_id", "settings"]].drop_duplicates("settings").to_dict("records"):
        if pd.notna(row["settings"]) and not _are_settings(row["settings"]):
            return f"run {row['run_id']}: settings {row['settings'][:40]!r}: not what one trains by"
    alike = ["dataset", "method", "search_accounting", "settings"]
    for row in runs[["run_id", *alike]].drop_duplicates(alike).to_dict("records"):
        for text in (*protected.complaints(row), *parts_of_searches.complaints(row)):
            return f"run {row['run_id']}: {text}"
    for row in runs[["run_id", *_CLAIM]].drop_duplicates(_CLAIM).to_dict("records"):
        for text in _complaints(row):
            return f"run {row['run_id']}: {text}"
    return None


def records(frame: pd.DataFrame) -> list[Row]:
    """Its rows, each by its columns' names."""
    return list(frame.to_dict("records"))


def check_planned(row: Row, cohort: Cohort, run: Run) -> None:
    """OsoError unless the row is what the plan says of the run with its identity."""
    planned = {
        **{name: getattr(cohort, name) for name in ("dataset", "method", "k", "epsilon", "delta")},
        **{name: getattr(cohort, name) for name in ("search_accounting", "momentum", "precision")},
        **({} if pd.isna(row["settings"]) else {"settings": cohort.run_options}),
        **{name: getattr(cohort, name) for name in ("examples", "batch_size", "epochs", "steps")},
        **{name: getattr(run, name) for name in ("seed", *POINT)},
    }
    for name, value in planned.items():
        stored = None if pd.isna(row[name]) else row[name]
        if stored != value:
            raise OsoError(f"run {row['run_id']}: {name} is {stored}, in the plan {value}")


def settings_of(row: Row) -> dict[str, Any]:
    """What the row's column `settings` says, empty where it is null.

    OsoError where it says how large the grid is, but the run's identity does not cover it.
    """
    if pd.isna(row["settings"]):
        return {}
    said: dict[str, Any] = parse_json(row["settings"])
    known = {name: None if pd.isna(value) else value for name, value in row.items()}
    if "grid_runs" in said and make_run_id(known, said) != row["run_id"]:
        raise OsoError(
            f"run {row['run_id']}: its identity is not that of its values and `settings`"
        )
    return said


def ledger_of(row: Row) -> Ledger:
    """The row's ledger; OsoError if it is broken."""
    try:
        return _ledger(row["ledger"])
    except OsoError as error:
        raise OsoError(f"run {row['run_id']}: {error}") from None


@lru_cache(maxsize=10_000)  # the runs of a grid wrote the same text
def _ledger(text: str) -> Ledger:
    return Ledger.from_json(text)


def _are_settings(text: str) -> bool:
    try:
        said = parse_json(text)
    except ValueError:
        return False
    if not isinstance(said, dict) or not isinstance(said.get("settings", {}), dict):
        return False
    if not protected.are_sound(said):
        return False
    decay = said.get("averaging", 0.5)
    if said.get("schedule", "linear") != "linear" or type(decay) is not float or not 0 < decay < 1:
        return False
    size, shape = said.get("grid_runs", 1), said.get("stopping_distribution")
    return type(size) is int and size > 0 and (shape is None or shape in STOPPING_ETA)


def _complaints(row: Row) -> Iterator[str]:
    if row["method"] not in method_names():
        yield f"method {row['method']!r} is not known"
    if not 0 < row["batch_size"] <= row["examples"]:
        yield f"batch_size {row['batch_size']} of {row['examples']} examples"
    known = DATASETS.get(row["dataset"])
    if known is not None and row["examples"] != known.examples:
        yield f"examples {row['examples']}: {row['dataset']} has {known.examples}"
    if row["steps"] != count_steps(row["epochs"], row["examples"], row["batch_size"]):
        yield f"steps {row['steps']} are not those of {row['epochs']} epochs"
    if row["status"] not in ("finished", "diverged"):
        yield f"status {row['status']!r}: allowed are finished, diverged"
    ended = row["diverged_at"]
    if row["status"] == "diverged" and (pd.isna(ended) or not 1 <= ended <= row["steps"]):
        yield f"diverged_at {ended}: must be 1 to {row['steps']}"
    if row["status"] == "finished" and pd.notna(ended):
        yield f"diverged_at {ended:g}, but status finished"
    yield from _budget_complaints(row)
    yield from _ledger_complaints(row)


def _budget_complaints(row: Row) -> Iterator[str]:
    budget = {name: row[name] for name in ("epsilon", "delta", "noise_multiplier")}
    if not find_method(row["method"]).is_private:
        claimed = [name for name, value in budget.items() if pd.notna(value)]
        if claimed:
            yield f"{row['method']} has no privacy, but a value of {claimed[0]}"
        return
    for name, value in budget.items():
        most = 1.0 if name == "delta" else math.inf
        if pd.isna(value) or not 0 < value < most:
            yield f"{name} {value}: must be above 0 and below {most:g}"
    if row["search_accounting"] not in SEARCH_ACCOUNTINGS:
        yield f"search_accounting {row['search_accounting']!r}: allowed are {', '.join(SEARCH_ACCOUNTINGS)}"


def _ledger_complaints(row: Row) -> Iterator[str]:
    try:
        ledger = _ledger(row["ledger"])
    except OsoError as error:
        yield str(error)
        return
    for text in _contradictions(row, ledger):
        yield f"its ledger {text}"


def _contradictions(row: Row, ledger: Ledger) -> Iterator[str]:
    rate = row["batch_size"] / row["examples"]
    if not math.isclose(ledger.sampling.rate, rate, rel_tol=1e-9):
        yield f"has sampling rate {ledger.sampling.rate:g}, the row {rate:g}"
    steps = row["steps"] if row["status"] == "finished" else int(row["diverged_at"])
    if ledger.step_count != steps:
        yield f"has {ledger.step_count} steps, the row {steps}"
    if pd.isna(row["noise_multiplier"]):
        return
    for nu, _ in ledger.releases():
        if nu < row["noise_multiplier"] * (1 - 1e-6):
            yield f"has noise multiplier {nu:.6g}, the row {row['noise_multiplier']:.6g}"
    second = row["query_noise_multiplier"]
    if pd.notna(second) and not any(math.isclose(nu, second, rel_tol=1e-6) for nu in _sums(ledger)):
        yield f"has no sum of noise multiplier {second:.6g}, which the row says of its second query"


def _sums(ledger: Ledger) -> Iterator[float]:
    """The noise multiplier of each sum of its steps; of a sum by groups of layers, of all."""
    for queries, _ in ledger.steps:
        groups: dict[str, list[float]] = {}
        for query in queries:
            groups.setdefault(query.name.split("/")[0], []).append(query.noise_multiplier)
        yield from map(combined_noise_multiplier, groups.values())
