"""What each column of the results may hold, whoever wrote it: a rule per column of the schema.

A value that breaks one was measured by no version of this project, and no reader takes it. What the
values of a row say together is in `claims`, what the two tables say together in `evaluated`.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from oso_dp.accounting.search_accounting import SEARCH_ACCOUNTINGS
from oso_dp.methods import method_names
from oso_dp.metrics import METRICS
from oso_dp.results.schema import SPLITS

_SIGNS: Final = {
    "gt": ("above", pc.greater),
    "ge": ("at least", pc.greater_equal),
    "lt": ("below", pc.less),
    "le": ("at most", pc.less_equal),
}
_MOST: Final = 10**9  # steps, examples


@dataclass(frozen=True)
class ColumnRule:
    """A finite number within limits (None: without this one), or one of some words."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    words: tuple[str, ...] = ()
    needed: bool = False  # elsewhere null says that a value does not apply

    def __str__(self) -> str:
        if self.words:
            return f"allowed are {', '.join(self.words)}"
        parts = [f"{_SIGNS[name][0]} {limit:g}" for name, limit in self._limits()]
        return f"must be {' and '.join(parts) or 'a finite number'}"

    def broken(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Of each value whether it breaks the rule."""
        if self.words:
            column = column.cast(pa.string())
            holds = pc.is_in(column, value_set=pa.array(self.words, column.type))
            return pc.and_(pc.invert(holds), pc.is_valid(column))
        holds = pc.is_finite(column)
        for name, limit in self._limits():
            holds = pc.and_(holds, _SIGNS[name][1](column, limit))
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
        return [(name, limit) for name in _SIGNS if (limit := getattr(self, name)) is not None]


_COUNT = ColumnRule(ge=1, le=_MOST)
_POSITIVE = ColumnRule(gt=0)

RULES: Final[dict[str, dict[str, ColumnRule]]] = {
    "runs": {
        "method": ColumnRule(words=tuple(method_names())),
        "k": _COUNT,
        "epsilon": _POSITIVE,
        "delta": ColumnRule(gt=0, lt=1),
        "search_accounting": ColumnRule(words=SEARCH_ACCOUNTINGS),
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
        "precision": ColumnRule(words=("float32", "tf32", "bfloat16")),
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


def complaint(table: pa.Table, kind: str) -> str | None:
    """The first value of this table (runs or evaluations, any of their columns) that cannot be."""
    for name, rule in RULES[kind].items():
        if name not in table.column_names:
            continue
        column = table[name]
        if pa.types.is_list(column.type):
            if not rule.holds(pc.list_flatten(column)):
                return _said_of_list(table, column, name, rule)
            continue
        if rule.needed and column.null_count:
            return _said(table, pc.is_null(column), name, "is missing")
        if not rule.holds(column):
            return _said(table, rule.broken(column), name, str(rule))
    if {"metric", "value"} <= {*table.column_names} and not ColumnRule(le=1).holds(table["value"]):
        share = pc.and_(
            pc.greater(table["value"], 1), pc.equal(table["metric"].cast(pa.string()), "accuracy")
        )
        if pc.any(share).as_py():
            return _said(table, share, "value", "an accuracy must be at most 1")
    return None


def _said_of_list(table: pa.Table, column: pa.ChunkedArray, name: str, rule: ColumnRule) -> str:
    """The first row whose list holds an element at fault."""
    at_fault = pc.list_parent_indices(column).filter(rule.broken(pc.list_flatten(column)))
    rows = pa.array(range(len(table)))
    return _said(table, pc.is_in(rows, value_set=at_fault.combine_chunks()), name, str(rule))


def _said(table: pa.Table, broken: pa.ChunkedArray, name: str, rule: str) -> str:
    """The first row at fault, by its run where that is known."""
    row = pc.index(broken, True).as_py()
    value = table[name][row].as_py()
    text = f"{name} {rule}" if value is None else f"{name} {value!r}: {rule}"
    known = table["run_id"][row].as_py() if "run_id" in table.column_names else None
    return f"run {known}: {text}" if known is not None else f"row {row + 1}: {text}"
