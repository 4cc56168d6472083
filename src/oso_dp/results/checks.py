"""Validation of stored results: columns, each run against its ledger, runs against evaluations.

Readers refuse a table with a value that breaks a rule. The checks beyond single columns protect
budgets: the cost of a run follows from its ledger, the number of runs that share an epsilon from
the column `budget_runs`, and a run without evaluations, or the reverse, is an error.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from oso_dp.accounting.search_accounting import (
    COMPOSITION,
    find_cohort_error,
    find_search_accounting,
    search_accounting_names,
)
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.data.catalogue import OOV_WORDS
from oso_dp.defaults import MAX_COUNT, ROUNDING, LossReduction, PrecisionName
from oso_dp.errors import OsoError
from oso_dp.methods import find_method, method_names
from oso_dp.metrics import METRICS
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.promise import EXAMPLE, USER
from oso_dp.privacy.rng_sources import SOURCES
from oso_dp.results.schema import KEYS, SPLITS
from oso_dp.study.cohort import Cohort, Run
from oso_dp.study.identity import (
    BASIC_OPTIONS,
    OPTIONS,
    POINT,
    make_run_id,
    parse_trial_fractions,
)

Row = dict[str, Any]

# Columns

_OPERATORS: Final = {
    "gt": (">", pc.greater),
    "ge": (">=", pc.greater_equal),
    "lt": ("<", pc.less),
    "le": ("<=", pc.less_equal),
}


@dataclass(frozen=True)
class ColumnRule:
    """A finite number within limits (None: no limit), or one of `words`."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    words: tuple[str, ...] = ()
    needed: bool = False  # else null means that the value does not apply

    def __str__(self) -> str:
        if self.words:
            return f"must be one of {', '.join(self.words)}"
        parts = [f"{_OPERATORS[name][0]} {limit:g}" for name, limit in self._limits()]
        return f"must be {' and '.join(parts) or 'a finite number'}"

    def broken(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Of each value whether it breaks the rule."""
        if self.words:
            column = column.cast(pa.string())
            holds = pc.is_in(column, value_set=pa.array(self.words, column.type))
            return pc.and_(pc.invert(holds), pc.is_valid(column))
        holds = pc.is_finite(column)
        for name, limit in self._limits():
            holds = pc.and_(holds, _OPERATORS[name][1](column, limit))
        return pc.fill_null(pc.invert(holds), False)

    def holds(self, column: pa.ChunkedArray) -> bool:
        """Whether no value breaks it; by the extremes, which takes a tenth of the time."""
        if self.words:
            return set(pc.unique(column).to_pylist()) <= {*self.words, None}
        if pc.all(pc.is_finite(column)).as_py() is False:
            return False
        ends = pa.chunked_array([pa.array(pc.min_max(column).as_py().values(), column.type)])
        return not pc.any(self.broken(ends)).as_py()

    def _limits(self) -> list[tuple[str, float]]:
        return [(name, limit) for name in _OPERATORS if (limit := getattr(self, name)) is not None]


_COUNT = ColumnRule(ge=1, le=MAX_COUNT)
_POSITIVE = ColumnRule(gt=0)

RULES: Final[dict[str, dict[str, ColumnRule]]] = {
    "runs": {
        "method": ColumnRule(words=tuple(method_names())),
        "k": _COUNT,
        "epsilon": _POSITIVE,
        "delta": ColumnRule(gt=0, lt=1),
        "search_accounting": ColumnRule(words=search_accounting_names()),
        "seed": ColumnRule(ge=0),
        "learning_rate": _POSITIVE,
        "threshold": _POSITIVE,
        "quantile": ColumnRule(gt=0, lt=1),
        "momentum": ColumnRule(ge=0, lt=1),
        "noise_multiplier": _POSITIVE,
        "query_noise_multiplier": _POSITIVE,
        "sampling": ColumnRule(words=("poisson",)),
        "examples": _COUNT,
        "batch_size": _COUNT,
        "epochs": _COUNT,
        "steps": _COUNT,
        "precision": ColumnRule(words=get_args(PrecisionName)),
        "grid_runs": _COUNT,
        "evaluate_every": _COUNT,
        "loss": ColumnRule(words=get_args(LossReduction)),
        "oov_words": ColumnRule(words=OOV_WORDS),
        "randomness": ColumnRule(words=tuple(SOURCES)),
        "stopping_distribution": ColumnRule(words=tuple(STOPPING_ETA)),
        "schedule": ColumnRule(words=("linear",)),
        "averaging": ColumnRule(gt=0, lt=1),
        "budget_runs": _COUNT,
        "unit": ColumnRule(words=(USER.name,)),
        "rng_version": _COUNT,
        "status": ColumnRule(words=("finished", "diverged")),
        "diverged_at": _COUNT,
        "wall_seconds": ColumnRule(ge=0),
    },
    "evaluations": {
        "step": _COUNT,
        "split": ColumnRule(words=SPLITS),
        "metric": ColumnRule(words=tuple(METRICS), needed=True),
        "value": ColumnRule(ge=0, needed=True),
        "loss": ColumnRule(needed=True),
        "threshold": ColumnRule(ge=0),
        "learning_rate": ColumnRule(ge=0),
        "fraction_clipped": ColumnRule(),  # sanitized, so it may lie outside of 0 to 1
        "class_accuracy": ColumnRule(ge=0, le=1),  # of each element of its list
    },
}


def find_column_error(table: pa.Table, kind: str) -> str | None:
    """The first value of this table (runs or evaluations, any of their columns) that cannot be."""
    for name, rule in RULES[kind].items():
        if name not in table.column_names:
            continue
        column = table[name]
        if pa.types.is_list(column.type):
            if not rule.holds(pc.list_flatten(column)):
                return _list_error(table, column, name, rule)
            continue
        if rule.needed and column.null_count:
            return _column_error(table, pc.is_null(column), name, "is missing")
        if not rule.holds(column):
            return _column_error(table, rule.broken(column), name, str(rule))
    if {"metric", "value"} <= {*table.column_names} and not ColumnRule(le=1).holds(table["value"]):
        too_large = pc.and_(
            pc.greater(table["value"], 1), pc.equal(table["metric"].cast(pa.string()), "accuracy")
        )
        if pc.any(too_large).as_py():
            return _column_error(table, too_large, "value", "an accuracy must be <= 1")
    return None


def _list_error(table: pa.Table, column: pa.ChunkedArray, name: str, rule: ColumnRule) -> str:
    """The first row whose list holds an element at fault."""
    at_fault = pc.list_parent_indices(column).filter(rule.broken(pc.list_flatten(column)))
    rows = pa.array(range(len(table)))
    return _column_error(
        table, pc.is_in(rows, value_set=at_fault.combine_chunks()), name, str(rule)
    )


def _column_error(table: pa.Table, broken: pa.ChunkedArray, name: str, rule: str) -> str:
    """The first row at fault, by its run where that is known."""
    row = pc.index(broken, True).as_py()
    value = table[name][row].as_py()
    text = f"{name} {rule}" if value is None else f"{name}: {value!r}; {rule}"
    known = table["run_id"][row].as_py() if "run_id" in table.column_names else None
    return f"run {known}: {text}" if known is not None else f"row {row + 1}: {text}"


# Runs

_NEEDED = (
    *("run_id", "dataset", "method", "k", "seed", "learning_rate", "search_accounting"),
    *("examples", "batch_size", "epochs", "steps", *BASIC_OPTIONS, "status"),
)
# The columns that the checks read: rows that are equal in these are checked once.
_CLAIM = [
    *("dataset", "method", "epsilon", "delta", "search_accounting", "noise_multiplier", *OPTIONS),
    *("ledger", "examples", "batch_size", "steps", "status", "diverged_at"),
]


def find_identity_error(runs: pd.DataFrame) -> str | None:
    """A missing or repeated run_id."""
    if unnamed := int(runs["run_id"].isna().sum()):
        return f"{unnamed} rows without run_id"
    repeated = runs["run_id"].duplicated()
    if not repeated.any():
        return None
    run = runs.loc[repeated, "run_id"].iloc[0]
    return f"run {run} appears more than once ({int(repeated.sum())} rows repeat another's run_id)"


def find_runs_error(runs: pd.DataFrame) -> str | None:
    """The first run whose privacy cost is missing or contradicted by its ledger; or None."""
    for name in _NEEDED:
        missing = runs[name].isna()
        if missing.any():
            return f"run {runs.loc[missing, 'run_id'].iloc[0]}: {name} is missing"
    for row in records(runs[["run_id", *_CLAIM]].drop_duplicates(_CLAIM)):
        for text in _row_errors(row):
            return f"run {row['run_id']}: {text}"
    return None


def _row_errors(row: Row) -> Iterator[str]:
    yield from _option_errors(row)
    private = find_method(row["method"]).is_private
    budget = [name for name in ("epsilon", "delta", "noise_multiplier") if pd.isna(row[name])]
    if private and budget:
        yield f"{budget[0]} is missing"
    diverged = row["status"] == "diverged"
    if diverged and pd.isna(row["diverged_at"]):
        yield "diverged_at is missing"
        return
    try:
        ledger = _ledger(row["ledger"])
    except OsoError as error:
        yield str(error)
        return
    rate = row["batch_size"] / row["examples"]
    if not math.isclose(ledger.sampling.rate, rate, rel_tol=ROUNDING):
        yield f"its ledger has sampling rate {ledger.sampling.rate:g}, the row {rate:g}"
    unit = row["unit"] or EXAMPLE.name
    if ledger.sampling.unit.name != unit:
        yield f"its ledger protects one {ledger.sampling.unit.name}, the row one {unit}"
    steps = int(row["diverged_at"]) if diverged else row["steps"]
    if ledger.step_count != steps:
        yield f"its ledger has {ledger.step_count} steps, the row {steps}"
    if private:
        nu = row["noise_multiplier"]
        for used, _ in ledger.releases():
            if not math.isclose(used, nu, rel_tol=ROUNDING):
                yield f"its ledger has noise multiplier {used:.6g}, the row {nu:.6g}"


def _option_errors(row: Row) -> Iterator[str]:
    """Options that contradict others on a budget."""
    if row["budget_runs"] is not None:
        reason = f"since the data of {row['dataset']} are not declared public"
        if row["data_version"] is None:
            yield "data_version is missing"
        if not find_method(row["method"]).is_private:
            yield f"method: {row['method']}; must be private, {reason}"
        if row["randomness"] != "system":
            yield f"randomness: {row['randomness']}; must be system, {reason}"
        if not find_search_accounting(row["search_accounting"]).counts_every_run:
            yield f"search_accounting: {row['search_accounting']}; must be {COMPOSITION}, {reason}"
    if (row["unit"] is None) != (row["local"] is None):
        yield "unit and local must both be null, or neither"
    fractions = row["trial_fractions"]
    try:
        parsed = None if fractions is None else parse_trial_fractions(fractions)
    except ValueError:
        yield f"trial_fractions: {fractions!r}; must be numbers, separated by a comma and a space"
        return
    options = {
        "stopping_distribution": row["stopping_distribution"],
        "trial_fractions": parsed,
    }
    if wrong := find_cohort_error(row["search_accounting"], options, row["stage"]):
        yield wrong


def records(frame: pd.DataFrame) -> list[Row]:
    """The rows as dictionaries, nulls as None."""
    # Column by column: a frame of objects takes five times as long.
    columns = []
    for _, column in frame.items():
        missing = column.isna().to_numpy()
        values = zip(column.tolist(), missing, strict=True)
        columns.append([None if gone else value for value, gone in values])
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def check_planned(row: Row, cohort: Cohort, run: Run) -> None:
    """OsoError unless the row, as by `records`, agrees with the plan of its run."""
    planned = {
        **{name: getattr(run, name) for name in ("seed", *POINT)},
        **cohort.columns,
        "steps": cohort.steps,
    }
    for name, value in planned.items():
        if row[name] != value:
            raise OsoError(
                f"run {row['run_id']}: {name}: {row[name]}; must be {value}, as in the plan"
            )


def check_identity(row: Row) -> None:
    """OsoError if the values of the row, as by `records`, contradict its run_id."""
    if make_run_id(row) != row["run_id"]:
        raise OsoError(f"run {row['run_id']}: run_id: not the identity of its values")


def parse_ledger(row: Row) -> Ledger:
    """The row's ledger; OsoError if it is malformed."""
    try:
        return _ledger(row["ledger"])
    except OsoError as error:
        raise OsoError(f"run {row['run_id']}: {error}") from None


@lru_cache(maxsize=10_000)  # the runs of a grid have the same text
def _ledger(text: str) -> Ledger:
    return Ledger.from_json(text)


# User-defined data sets that are not public


def protected(runs: pd.DataFrame) -> pd.Series:
    """For each run whether its data are declared as not public."""
    return runs["budget_runs"].notna()


def shared_budgets(runs: pd.DataFrame) -> dict[str, int]:
    """The number of runs that share the epsilon of each data set that is not public."""
    return runs[protected(runs)].groupby("dataset")["budget_runs"].max().astype(int).to_dict()


# Both tables


def find_evaluations_error(runs: pd.DataFrame, evaluations: pa.Table) -> str | None:
    """The first repeated evaluation, evaluation without a run, or finished run without one."""
    key = KEYS["evaluations"]
    if any(evaluations[name].null_count for name in key):
        unnamed = len(evaluations) - len(evaluations.select(key).drop_null())
        return f"{unnamed} rows without {' or '.join(key)}"
    run, run_ids = _codes(evaluations["run_id"])
    split, splits = _codes(evaluations["split"])
    step = evaluations["step"].to_numpy()
    # Integers are fast to compare by the million.
    keys = (run * (int(step.max(initial=0)) + 1) + step) * max(1, len(splits)) + split
    repeated = pd.Series(keys).duplicated().to_numpy()
    if repeated.any():
        return (
            f"run {run_ids[run[repeated.argmax()]]} appears more than once "
            f"({int(repeated.sum())} rows repeat another's {', '.join(key)})"
        )
    if unknown := {*run_ids} - {*runs["run_id"]}:
        return (
            f"evaluations of run {min(unknown)} have no row in runs.parquet; "
            "one of the two files is older or incomplete; start its study again, or "
            "`oso collect` the study's parts/*/shard*"
        )
    finished = {*runs.loc[runs["status"] == "finished", "run_id"]}
    if unseen := finished - {*run_ids}:  # one that diverged may have had none
        return (
            f"run {min(unseen)} is finished, but has no row in evaluations.parquet; "
            f"{len(unseen)} such runs; a shard is missing or one of the two files is older; "
            "collect their shards again"
        )
    return None


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Codes and categories of texts without null."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    return whole.indices.to_numpy().astype(np.int64), whole.dictionary.to_pylist()
