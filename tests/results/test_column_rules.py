"""Each column's rule holds up to its limit, and not beyond it."""

import math

import numpy as np
import pyarrow as pa
import pytest

from oso_dp.methods import method_names
from oso_dp.results.checks import RULES, find_column_error
from oso_dp.results.schema import SCHEMAS

LIMITS = [
    (kind, name, sign, limit)
    for kind, rules in RULES.items()
    for name, rule in rules.items()
    for sign, limit in vars(rule).items()
    if sign in ("gt", "ge", "lt", "le") and limit is not None
]
NUMBERS = [
    (kind, name)
    for kind, rules in RULES.items()
    for name, rule in rules.items()
    if SCHEMAS[kind].field(name).type in (pa.float64(), pa.list_(pa.float64()))
]


def said(kind: str, name: str, *values: object) -> str | None:
    """Of a table that has this column alone."""
    column = SCHEMAS[kind].field(name).type
    rows = [[0.5, value] for value in values] if pa.types.is_list(column) else values
    return find_column_error(pa.table({name: pa.array(rows, column)}), kind)


@pytest.mark.parametrize(("kind", "name", "sign", "limit"), LIMITS)
def test_the_limit_is_where_the_rule_says(kind, name, sign, limit) -> None:
    whole = pa.types.is_integer(SCHEMAS[kind].field(name).type)
    above = limit + 1 if whole else np.nextafter(limit, math.inf)
    below = limit - 1 if whole else np.nextafter(limit, -math.inf)
    held, broken = {
        "gt": (above, (limit, below)),
        "ge": (limit, (below,)),
        "lt": (below, (limit, above)),
        "le": (limit, (above,)),
    }[sign]
    assert said(kind, name, held) is None
    for value in broken:
        assert said(kind, name, held, value, held).startswith("row 2: ")
        assert name in said(kind, name, value)


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_number_is_finite(kind, name) -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert said(kind, name, value) is not None


def test_what_must_be_a_share_or_above_zero() -> None:
    for name in ("epsilon", "learning_rate", "threshold", "noise_multiplier"):
        assert said("runs", name, 0.0) is not None
        assert said("runs", name, 1e-300, 1e300) is None
    for name in ("delta", "quantile"):
        assert said("runs", name, 0.0) is not None
        assert said("runs", name, 1.0) is not None
        assert said("runs", name, 1e-9, 0.999) is None
    for name in ("steps", "batch_size", "examples", "epochs", "k"):
        assert said("runs", name, 0) is not None
        assert said("runs", name, 1, 10**9) is None
        assert said("runs", name, 10**9 + 1) is not None
    assert said("evaluations", "value", -1e-9) is not None
    assert said("evaluations", "fraction_clipped", -0.2, 1.3) is None


# All the words that there are: batches of another kind, for one, would cost another epsilon.
WORDS = {
    ("runs", "method"): {*method_names()},
    ("runs", "search_accounting"): {"composition", "random_stopping", "single", "linear_scaling"},
    ("runs", "sampling"): {"poisson"},
    ("runs", "precision"): {"float32", "tf32", "bfloat16"},
    ("runs", "loss"): {"mean", "sum"},
    ("runs", "oov_words"): {"zeros", "skipped"},
    ("runs", "randomness"): {"seeded", "system"},
    ("runs", "stopping_distribution"): {"logarithmic", "geometric", "poisson"},
    ("runs", "schedule"): {"linear"},
    ("runs", "status"): {"finished", "diverged"},
    ("evaluations", "split"): {"test", "test_even", "test_odd"},
    ("evaluations", "metric"): {"accuracy", "mse"},
}


def test_a_column_of_words_holds_these_and_no_others() -> None:
    held = {
        (kind, name): {*rule.words}
        for kind, rules in RULES.items()
        for name, rule in rules.items()
        if rule.words
    }
    assert held == WORDS


@pytest.mark.parametrize("value", [np.nextafter(1.0, 2.0), 1.0001, 1.01, 100.0])
def test_an_accuracy_is_at_most_1_and_an_error_need_not_be(value: float) -> None:
    def of(metric: str, *values: float) -> str | None:
        rows = {"metric": [metric] * len(values), "value": values}
        return find_column_error(pa.table(rows), "evaluations")

    assert of("accuracy", 0.0, 1.0) is None
    assert of("accuracy", 1.0, value).startswith("row 2: value: ")
    assert of("mse", 1.0, value) is None
