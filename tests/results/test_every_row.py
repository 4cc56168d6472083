"""Every row is looked at: one that is wrong in a single value does not hide behind a right one."""

from types import SimpleNamespace

import pandas as pd
import pytest
from tests.stores import options

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.checks import check_planned, find_runs_error
from oso_dp.study.identity import BASIC_OPTIONS

from .conftest import STEPS, ledger, run_row

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
def test_one_wrong_value_is_named_behind_a_row_that_is_right(column: str) -> None:
    right = run_row("right")
    assert find_runs_error(pd.DataFrame([right])) is None
    rows = pd.DataFrame([right, right | {"run_id": "wrong", column: WRONG[column]}])
    said = find_runs_error(rows)
    assert said is not None
    assert said.startswith("run wrong: ")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_kind_of_step_has_less_noise_than_the_row_says(place: int) -> None:
    nu = [0.9, 0.815, 2.0]
    nu[place] = 0.8
    counts = (1, STEPS - 3, 2)
    steps = [((SumQuery("clipped_gradient", n),), c) for n, c in zip(nu, counts, strict=True)]
    text = Ledger(PoissonSampling(512 / 60_000), steps).to_json()
    said = find_runs_error(pd.DataFrame([run_row("wrong", ledger=text)]))
    assert said == "run wrong: its ledger has noise multiplier 0.8, the row 0.815"


@pytest.mark.parametrize("name", BASIC_OPTIONS)
def test_options_are_known_all_or_none(name: str) -> None:
    assert find_runs_error(pd.DataFrame([run_row("row", **options())])) is None
    said = find_runs_error(pd.DataFrame([run_row("row", **options(**{name: None}))]))
    assert said == f"run row: {name} is missing"


# The options of a row on data that are not public, and what no such row may be.
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
def test_a_row_on_protected_data_is_looked_at_behind_others_that_are_right(case: str) -> None:
    right = run_row("right", dataset="patients", **OWN)
    assert find_runs_error(pd.DataFrame([right])) is None
    wrong = {**right, "run_id": "wrong", **UNFIT[case]}
    said = find_runs_error(pd.DataFrame([right, wrong]))
    assert said is not None
    assert said.startswith("run wrong: ")
    assert said.endswith("since the data of patients are not declared public")


def test_a_part_of_no_search_in_parts_is_named_behind_a_row_that_is_right() -> None:
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
def test_what_every_run_has_is_missing_in_none(name: str) -> None:
    rows = pd.DataFrame([run_row("right"), run_row("wrong")]).astype(object)
    rows.loc[1, name] = None
    assert find_runs_error(rows) == f"run wrong: {name} is missing"


@pytest.mark.parametrize("more", [-1, 1, STEPS])
@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_a_ledger_has_as_many_steps_as_its_run(status: str, more: int) -> None:
    made = STEPS if status == "finished" else 700
    row = run_row("row", status=status, diverged_at=None if status == "finished" else made)
    other = run_row("other", status="diverged", diverged_at=made + more)["ledger"]
    said = find_runs_error(pd.DataFrame([row | {"ledger": other}]))
    assert said == f"run row: its ledger has {made + more} steps, the row {made}"


def test_each_row_is_checked_that_differs_in_its_last_step_alone() -> None:
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
def test_a_row_is_held_against_its_plan_in_all_that_was_planned(name: str) -> None:
    row = run_row("row", dataset="mine", **options(), momentum=0.9, quantile=0.5)
    of_run = {"run_id", "steps", *OF_A_RUN}
    columns = {key: row[key] for key in row if key not in of_run}
    cohort, run = SimpleNamespace(columns=columns, steps=row["steps"]), SimpleNamespace(**row)
    check_planned(row, cohort, run)
    other = row[name] + ("x" if isinstance(row[name], str) else 1)
    with pytest.raises(OsoError, match=rf"^run row: {name}: .*, as in the plan"):
        check_planned(row | {name: other}, cohort, run)


def test_a_wrong_row_is_found_behind_a_thousand_kinds_that_are_right() -> None:
    rows = [run_row(str(n), k=n + 1, epsilon=9.0 - n * 1e-3) for n in range(1500)]
    assert find_runs_error(pd.DataFrame(rows)) is None
    rows.append(run_row("wrong", noise_multiplier=0.9, ledger=rows[0]["ledger"]))
    assert "run wrong: " in (find_runs_error(pd.DataFrame(rows)) or "")
