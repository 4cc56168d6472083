"""Every row is looked at: one that is wrong in a single value does not hide behind a right one."""

import json
import math
from types import SimpleNamespace

import pandas as pd
import pytest

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results import row_claims
from oso_dp.results.row_claims import check_planned, complaint

from .conftest import STEPS, ledger, run_row

# What no training writes, beside a row that is alike in all else.
WRONG = {
    "dataset": "ag_news",  # which has another number of examples
    "method": "no_dp",  # which has no budget
    "epsilon": None,
    "delta": 2.0,
    "search_accounting": "by hand",
    "noise_multiplier": 0.9,  # more than its ledger has
    "query_noise_multiplier": 5.8,  # of no sum in its ledger
    "examples": 59_999,
    "batch_size": 60_001,
    "epochs": 11,
    "steps": STEPS - 1,
    "status": "ended",
    "diverged_at": 5.0,  # of a run that is finished
    "ledger": ledger(**run_row("x", steps=STEPS - 1, ledger="")),
}


@pytest.mark.parametrize("column", WRONG)
def test_one_wrong_value_is_named_behind_a_row_that_is_right(column: str) -> None:
    right = run_row("right")
    assert complaint(pd.DataFrame([right])) is None
    rows = pd.DataFrame([right, right | {"run_id": "wrong", column: WRONG[column]}])
    said = complaint(rows)
    assert said is not None
    assert said.startswith("run wrong: ")


def test_every_column_that_a_claim_rests_on_is_tried() -> None:
    assert WRONG.keys() == {*row_claims._CLAIM}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_kind_of_step_has_less_noise_than_the_row_says(place: int) -> None:
    """Wherever it stands in the ledger, and however few there are."""
    nu = [0.9, 0.815, 2.0]
    nu[place] = 0.8
    counts = (1, STEPS - 3, 2)
    steps = [((SumQuery("clipped_gradient", n),), c) for n, c in zip(nu, counts, strict=True)]
    text = Ledger(PoissonSampling(512 / 60_000), steps).to_json()
    said = complaint(pd.DataFrame([run_row("wrong", ledger=text)]))
    assert said == "run wrong: its ledger has noise multiplier 0.8, the row 0.815"


def test_a_second_querys_noise_is_that_of_a_sum_in_the_ledger() -> None:
    """Proposition 1's price (C9, Figure 2) is told from this column."""

    def said(second: float, *sums: SumQuery) -> str | None:
        text = Ledger(PoissonSampling(512 / 60_000), [(sums, STEPS)]).to_json()
        row = run_row("run", query_noise_multiplier=second, ledger=text)
        return complaint(pd.DataFrame([row]))

    one = [SumQuery("clipped_gradient", 0.9), SumQuery("count", 5.0)]
    assert said(5.0, *one) is None
    assert said(81.5, *one) == (
        "run run: its ledger has no sum of noise multiplier 81.5, which the row says of its second "
        "query"
    )
    groups = [SumQuery(f"{name}/{i}", nu) for name, nu in (("g", 2), ("n", 10)) for i in range(4)]
    assert said(5.0, *groups) is None  # four sums of 10 cost what one of 5 does
    assert said(10.0, *groups) is not None


@pytest.mark.parametrize("batch_size", [500, 511, 512, 7_000, 40_000, 60_000])
@pytest.mark.parametrize("epochs", [1, 3, 10])
def test_the_steps_of_a_row_cover_its_epochs_whole(epochs: int, batch_size: int) -> None:
    """The last one begins what is left of them, however little: a step less costs less."""
    steps = math.ceil(epochs * 60_000 / batch_size)
    for count in (steps - 1, steps, steps + 1):
        if count:
            row = run_row("row", epochs=epochs, batch_size=batch_size, steps=count)
            said = complaint(pd.DataFrame([row]))
            expected = f"run row: steps {count} are not those of {epochs} epochs"
            assert said == (None if count == steps else expected)


# What a row's `settings` may say of numbers, from where on.
SAID = {
    "grid_runs": lambda number: {"grid_runs": number},
    "budget_runs": lambda number: {
        **{"budget_runs": number, "public": False, "data_version": "1"},
        **{"grid_runs": 1, "randomness": "system"},
    },
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("number", [-1, 0, 1, 81, 1.0, True, "9"])
def test_what_one_budget_pays_for_is_one_run_or_more(name: str, number: object) -> None:
    row = run_row("row", settings=json.dumps(SAID[name](number)))
    said = complaint(pd.DataFrame([row]))
    sound = type(number) is int and number > 0
    assert said is None if sound else "not what one trains by" in str(said)


@pytest.mark.parametrize("decay", [-0.1, 0.0, 1e-9, 0.5, 0.9999, 1.0, 1.5, 1])
def test_an_average_forgets_a_part_of_what_was(decay: float) -> None:
    """At 1 it would be the first weights for ever, at 0 no average."""
    said = complaint(pd.DataFrame([run_row("row", settings=json.dumps({"averaging": decay}))]))
    sound = type(decay) is float and 0 < decay < 1
    assert said is None if sound else "not what one trains by" in str(said)


# What the settings of a row on data that are not public say, and what no such row may be.
OWN = {"public": False, "budget_runs": 12, "data_version": "1", "randomness": "system"}
OWN |= {"grid_runs": 2}  # which says that an identity covers them
UNFIT = {
    "method": {"method": "no_dp", "epsilon": None, "delta": None},
    "search_accounting": {"search_accounting": "random_stopping"},
    "single": {"search_accounting": "single"},
    "scaled": {"search_accounting": "linear_scaling"},
    "seeded": {"settings": json.dumps({**OWN, "randomness": "seeded"})},
    "unsaid": {"settings": json.dumps({k: OWN[k] for k in OWN if k != "randomness"})},
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_row_on_protected_data_is_looked_at_behind_others_that_are_right(case: str) -> None:
    """One value differs: a method, a kind of search, or what its settings say of the noise."""
    right = run_row("right", dataset="patients", settings=json.dumps(OWN))
    assert complaint(pd.DataFrame([right])) is None
    wrong = {**right, "run_id": "wrong", **UNFIT[case]}
    said = complaint(pd.DataFrame([right, wrong]))
    assert said is not None
    assert said.startswith("run wrong: ")
    assert said.endswith("but the data of patients are not declared public")


def test_a_part_of_no_search_in_parts_is_named_behind_a_row_that_is_right() -> None:
    """Both rows say the same in `settings`; only the first may."""
    said = json.dumps({"part": "trial 1", "trial_fractions": [0.1, 0.2], "grid_runs": 9})
    rows = [run_row("right", settings=said, search_accounting="linear_scaling")]
    assert complaint(pd.DataFrame(rows)) is None
    rows.append(run_row("wrong", settings=said))
    assert complaint(pd.DataFrame(rows)) == (
        "run wrong: settings: part: only where selection is linear_scaling"
    )


NEEDED = ("dataset", "method", "k", "seed", "learning_rate", "search_accounting")
NEEDED_COUNTS = ("examples", "batch_size", "epochs", "steps")


@pytest.mark.parametrize("name", [*NEEDED, *NEEDED_COUNTS, "status"])
def test_what_every_run_has_is_missing_in_none(name: str) -> None:
    """A point without its learning rate, say, would be one point with all others like it."""
    rows = pd.DataFrame([run_row("right"), run_row("wrong")]).astype(object)
    rows.loc[1, name] = None
    assert complaint(rows) == f"run wrong: {name} is missing"


@pytest.mark.parametrize("beyond", [1, 2, 1000])
def test_no_run_diverges_after_its_last_step(beyond: int) -> None:
    for at in (1, STEPS, STEPS + beyond):
        row = run_row("row", status="diverged", diverged_at=at)
        said = complaint(pd.DataFrame([row]))
        expected = f"run row: diverged_at {at}: must be 1 to {STEPS}"
        assert said == (None if at <= STEPS else expected)


@pytest.mark.parametrize("more", [-1, 1, STEPS])
@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_a_ledger_has_as_many_steps_as_its_run(status: str, more: int) -> None:
    """Of more steps, too: one of the two is another run's."""
    made = STEPS if status == "finished" else 700
    row = run_row("row", status=status, diverged_at=None if status == "finished" else made)
    other = run_row("other", status="diverged", diverged_at=made + more)["ledger"]
    said = complaint(pd.DataFrame([row | {"ledger": other}]))
    assert said == f"run row: its ledger has {made + more} steps, the row {made}"


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", None, True])
def test_a_learning_rate_falls_in_the_one_way_that_there_is(schedule: object) -> None:
    said = complaint(pd.DataFrame([run_row("row", settings=json.dumps({"schedule": schedule}))]))
    assert said is None if schedule == "linear" else "not what one trains by" in str(said)


@pytest.mark.parametrize("at", [1, STEPS // 2, STEPS - 1, STEPS])
def test_no_finished_run_says_where_it_diverged(at: int) -> None:
    """Not at its last step either, up to which it was trained."""
    said = complaint(pd.DataFrame([run_row("row", diverged_at=at)]))
    assert said == f"run row: diverged_at {at}, but status finished"


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


@pytest.mark.parametrize("name", [*OF_A_COHORT, "settings", *NEEDED_COUNTS, *OF_A_RUN])
def test_a_row_is_held_against_its_plan_in_all_that_was_planned(name: str) -> None:
    """Of data whose size nobody knows, say, the plan alone tells how many examples there are."""
    row = run_row("row", dataset="mine", settings="{}", momentum=0.9, quantile=0.5)
    cohort, run = SimpleNamespace(**row), SimpleNamespace(**row)
    check_planned(row, cohort, run)
    other = row[name] + ("x" if isinstance(row[name], str) else 1)
    with pytest.raises(OsoError, match=rf"^run row: {name} is .*, in the plan "):
        check_planned(row | {name: other}, cohort, run)


def test_a_wrong_row_is_found_behind_a_thousand_kinds_that_are_right() -> None:
    """Each run that diverged is of a kind of its own."""
    rows = [run_row(str(n), k=n + 1, epsilon=9.0 - n * 1e-3) for n in range(1500)]
    assert complaint(pd.DataFrame(rows)) is None
    rows.append(run_row("wrong", noise_multiplier=0.9, ledger=rows[0]["ledger"]))
    assert "run wrong: " in (complaint(pd.DataFrame(rows)) or "")
