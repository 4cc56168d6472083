"""The rules of stored rows: each column up to its limit, each row, also behind right ones."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.stores import options

from oso_dp.errors import OsoError
from oso_dp.methods import method_names
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import (
    RULES,
    check_planned,
    find_column_error,
    find_evaluations_error,
    find_runs_error,
)
from oso_dp.results.schema import SCHEMAS
from oso_dp.study.identity import BASIC_OPTIONS

from .conftest import STEPS, evaluation_row, ledger, run_row

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
def test_find_column_error_enforces_limits(kind, name, sign, limit) -> None:
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
def test_find_column_error_nonfinite_found(kind, name) -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert said(kind, name, value) is not None


def test_find_column_error_enforces_ranges() -> None:
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
    ("runs", "unit"): {"user"},
    ("runs", "status"): {"finished", "diverged"},
    ("evaluations", "split"): {"test", "test_even", "test_odd"},
    ("evaluations", "metric"): {"accuracy", "mse"},
}


def test_rules_words_match_allowed_values() -> None:
    held = {
        (kind, name): {*rule.words}
        for kind, rules in RULES.items()
        for name, rule in rules.items()
        if rule.words
    }
    assert held == WORDS


@pytest.mark.parametrize("value", [np.nextafter(1.0, 2.0), 1.0001, 1.01, 100.0])
def test_find_column_error_bounds_accuracy_only(value: float) -> None:
    def of(metric: str, *values: float) -> str | None:
        rows = {"metric": [metric] * len(values), "value": values}
        return find_column_error(pa.table(rows), "evaluations")

    assert of("accuracy", 0.0, 1.0) is None
    assert of("accuracy", 1.0, value).startswith("row 2: value: ")
    assert of("mse", 1.0, value) is None


GONE = 60  # the step at which the second run diverged


def of_both(*changed: dict) -> str | None:
    """Of a run that is finished and one that diverged, with these evaluations besides."""
    rows = [evaluation_row("r1", 50), evaluation_row("r1", STEPS), evaluation_row("r2", 50)]
    runs = [run_row("r1"), run_row("r2", status="diverged", diverged_at=GONE)]
    return find_evaluations_error(pd.DataFrame(runs), pa.Table.from_pylist([*rows, *changed]))


def test_find_evaluations_error_valid_rows_pass() -> None:
    assert of_both() is None
    assert of_both(evaluation_row("r2", GONE - 1)) is None


@pytest.mark.parametrize("again", [("r2", 50), ("r1", 50)])
def test_find_evaluations_error_duplicate_found(again: tuple[str, int]) -> None:
    said = of_both(evaluation_row(*again, value=0.1))
    assert said is not None
    assert said.startswith(f"run {again[0]} appears more than once (1 rows")


# What no training writes, beside a row that is alike in all else.
WRONG = {
    "epsilon": None,
    "delta": None,
    "noise_multiplier": 0.9,  # more than its ledger has
    "examples": 59_999,  # of another sampling rate than its ledger's
    "batch_size": 511,
    "steps": STEPS - 1,
    "status": "diverged",  # at no step
    "ledger": ledger(**run_row("x", steps=STEPS - 1, ledger="")),
}


@pytest.mark.parametrize("column", WRONG)
def test_find_runs_error_inconsistent_value_found(column: str) -> None:
    right = run_row("right")
    assert find_runs_error(pd.DataFrame([right])) is None
    rows = pd.DataFrame([right, right | {"run_id": "wrong", column: WRONG[column]}])
    said = find_runs_error(rows)
    assert said is not None
    assert said.startswith("run wrong: ")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong", [0.8, 0.83, 3 * 0.815])
def test_find_runs_error_other_noise_found(wrong: float, place: int) -> None:
    """More noise than the row's would make its epsilon smaller."""
    nu = [0.815] * 3
    nu[place] = wrong
    counts = (1, STEPS - 3, 2)
    steps = [((SumQuery("clipped_gradient", n),), c) for n, c in zip(nu, counts, strict=True)]
    text = Ledger(PoissonSampling(512 / 60_000), steps).to_json()
    said = find_runs_error(pd.DataFrame([run_row("wrong", ledger=text)]))
    assert said == f"run wrong: its ledger has noise multiplier {wrong:g}, the row 0.815"


@pytest.mark.parametrize("name", BASIC_OPTIONS)
def test_find_runs_error_partial_options_found(name: str) -> None:
    assert find_runs_error(pd.DataFrame([run_row("row", **options())])) is None
    said = find_runs_error(pd.DataFrame([run_row("row", **options(**{name: None}))]))
    assert said == f"run row: {name} is missing"


# The options of a row on private data, and what no such row may be.
OWN = options(budget_runs=12, data_version="1", randomness="system")
UNFIT = {
    "method": {"method": "no_dp", "epsilon": None, "delta": None},
    "search_accounting": {"search_accounting": "random_stopping"},
    "single": {"search_accounting": "single"},
    "scaled": {"search_accounting": "linear_scaling"},
    "seeded": {"randomness": "seeded"},
    "unsaid": {"randomness": None},
}


@pytest.mark.parametrize("case", UNFIT)
def test_find_runs_error_unprotected_row_found(case: str) -> None:
    right = run_row("right", dataset="patients", **OWN)
    assert find_runs_error(pd.DataFrame([right])) is None
    wrong = {**right, "run_id": "wrong", **UNFIT[case]}
    said = find_runs_error(pd.DataFrame([right, wrong]))
    assert said is not None
    assert said.startswith("run wrong: ")
    assert said.endswith("since the data of patients are not declared public")


def test_find_runs_error_unexpected_stage_found() -> None:
    stage = options(stage="trial 1", trial_fractions="0.1, 0.2")
    rows = [run_row("right", **stage, search_accounting="linear_scaling")]
    assert find_runs_error(pd.DataFrame(rows)) is None
    rows.append(run_row("wrong", **stage))
    assert find_runs_error(pd.DataFrame(rows)) == (
        "run wrong: stage: only allowed if search_accounting is linear_scaling"
    )


NEEDED = ("dataset", "method", "k", "seed", "learning_rate", "search_accounting")
NEEDED_COUNTS = ("examples", "batch_size", "epochs", "steps")


@pytest.mark.parametrize("name", [*NEEDED, *NEEDED_COUNTS, "status"])
def test_find_runs_error_missing_value_found(name: str) -> None:
    rows = pd.DataFrame([run_row("right"), run_row("wrong")]).astype(object)
    rows.loc[1, name] = None
    assert find_runs_error(rows) == f"run wrong: {name} is missing"


@pytest.mark.parametrize("more", [-1, 1, STEPS])
@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_find_runs_error_wrong_steps_found(status: str, more: int) -> None:
    made = STEPS if status == "finished" else 700
    row = run_row("row", status=status, diverged_at=None if status == "finished" else made)
    other = run_row("other", status="diverged", diverged_at=made + more)["ledger"]
    said = find_runs_error(pd.DataFrame([row | {"ledger": other}]))
    assert said == f"run row: its ledger has {made + more} steps, the row {made}"


def test_find_runs_error_shared_ledger_checked() -> None:
    first = run_row("first", status="diverged", diverged_at=700)
    second = run_row("second", status="diverged", diverged_at=701) | {"ledger": first["ledger"]}
    said = find_runs_error(pd.DataFrame([first, second]))
    assert said == "run second: its ledger has 700 steps, the row 701"


OF_A_COHORT = (
    "dataset",
    "method",
    "k",
    "epsilon",
    "delta",
    "search_accounting",
    "momentum",
    "precision",
)
OF_A_RUN = ("seed", "learning_rate", "threshold", "quantile")


@pytest.mark.parametrize("name", [*OF_A_COHORT, "grid_runs", "model", *NEEDED_COUNTS, *OF_A_RUN])
def test_check_planned_differing_column_raises(name: str) -> None:
    row = run_row("row", dataset="mine", **options(), momentum=0.9, quantile=0.5)
    of_run = {"run_id", "steps", *OF_A_RUN}
    columns = {key: row[key] for key in row if key not in of_run}
    cohort, run = SimpleNamespace(columns=columns, steps=row["steps"]), SimpleNamespace(**row)
    check_planned(row, cohort, run)
    other = row[name] + ("x" if isinstance(row[name], str) else 1)
    with pytest.raises(OsoError, match=rf"^run row: {name}: .*, as in the plan"):
        check_planned(row | {name: other}, cohort, run)


def test_find_runs_error_many_rows_checked() -> None:
    rows = [run_row(str(n), k=n + 1, epsilon=9.0 - n * 1e-3) for n in range(1500)]
    assert find_runs_error(pd.DataFrame(rows)) is None
    rows.append(run_row("wrong", noise_multiplier=0.9, ledger=rows[0]["ledger"]))
    assert "run wrong: " in (find_runs_error(pd.DataFrame(rows)) or "")
