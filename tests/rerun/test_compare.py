"""What a run that was trained again is called, by what is the same and what came out."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from oso_dp.rerun import rerun
from oso_dp.rerun.rerun import (
    BEYOND,
    CHANGED,
    EQUAL,
    NOT_EQUAL,
    OTHER_RNG,
    ROUNDING,
    WITHIN,
    compare_run,
    explain_doubt,
)
from oso_dp.study.cohort import Run

ROW = {
    "run_id": "a",
    "device": "some CPU (1 thread)",
    "torch_version": "2.13.0",
    "precision": "float32",
    "rng_version": 2,
    "code_hash": "abc",
    "status": "finished",
    "diverged_at": None,
}


def evaluated(metric: str = "accuracy", more: float = 0.0) -> pd.DataFrame:
    """At two steps, on the test set and its halves; the best is at the first."""
    best = {"accuracy": [0.8, 0.7], "mse": [0.02, 0.03]}[metric]
    rows = [
        {
            "run_id": "a",
            "step": step,
            "split": split,
            "metric": metric,
            "value": value + more + (0.1 if split != "test" else 0),
            "loss": 1.0,
            "threshold": 0.1,
            "learning_rate": 1.0,
            "fraction_clipped": np.nan,
            "class_accuracy": None,
        }
        for (step, value), split in product(
            zip([50, 75], best, strict=True), ["test", "test_even", "test_odd"]
        )
    ]
    return pd.DataFrame(rows)


def verdict(more: float = 0.0, metric: str = "accuracy", **changed) -> str:
    return compare_run(ROW, evaluated(metric), ROW | changed, evaluated(metric, more)).text


@pytest.mark.parametrize("changed", [{}, {"code_hash": "other"}, {"device": "another"}])
def test_compare_run_same_numbers_equal(changed) -> None:
    assert verdict(**changed) == EQUAL


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, NOT_EQUAL),
        ({"code_hash": "other"}, CHANGED),
        ({"device": "some CPU (2 threads)"}, WITHIN),
        ({"torch_version": "2.14.0"}, WITHIN),
        ({"precision": "tf32"}, WITHIN),
        ({"device": "another", "code_hash": "other"}, WITHIN),
        ({"rng_version": 1}, OTHER_RNG),
    ],
)
def test_compare_run_last_digit_classified(changed, said: str) -> None:
    assert verdict(more=1e-7, **changed) == said


@pytest.mark.parametrize("changed", [{"code_hash": "other"}, {"device": "another"}])
@pytest.mark.parametrize(
    ("metric", "more", "said"),
    [
        ("accuracy", 0.0049, False),
        ("accuracy", -0.0049, False),
        ("accuracy", 0.0051, True),
        ("accuracy", -0.0051, True),
        ("mse", 0.00039, False),
        ("mse", 0.00041, True),
        ("mse", -0.00041, True),
    ],
)
def test_compare_run_best_value_tolerance_applied(changed, metric, more, said) -> None:
    assert (verdict(more, metric, **changed) == BEYOND) == said


@pytest.mark.parametrize("column", ["value", "loss", "threshold", "learning_rate"])
def test_compare_run_changed_column_not_equal(column: str) -> None:
    others = evaluated()
    others.loc[4, column] = np.nextafter(others.loc[4, column], 2.0)
    assert compare_run(ROW, evaluated(), ROW, others).text == NOT_EQUAL


@pytest.mark.parametrize("again", [0.25 + 2**-54, 0.3, np.nan])
def test_compare_run_fraction_clipped_compared(again: float) -> None:
    stored, others = (evaluated().assign(fraction_clipped=0.25) for _ in range(2))
    assert compare_run(ROW, stored, ROW, others).text == EQUAL
    others.loc[4, "fraction_clipped"] = again
    assert compare_run(ROW, stored, ROW, others).text == NOT_EQUAL


def test_compare_run_missing_evaluations_not_equal() -> None:
    assert compare_run(ROW, evaluated(), ROW, evaluated()[:-1]).text == NOT_EQUAL
    more = pd.concat([evaluated(), evaluated()[:1].assign(step=99)], ignore_index=True)
    assert compare_run(ROW, evaluated(), ROW, more).text == NOT_EQUAL


def test_compare_run_other_status_beyond_tolerance() -> None:
    assert verdict(more=1e-7, status="diverged", diverged_at=3, device="another") == BEYOND
    assert verdict(status="diverged", diverged_at=3) == NOT_EQUAL
    diverged = ROW | {"status": "diverged", "diverged_at": 3}
    later = diverged | {"diverged_at": 4, "device": "another"}
    none = evaluated()[:0]
    assert compare_run(diverged, none, diverged, none).text == EQUAL
    assert compare_run(diverged, none, later, none).text == WITHIN
    assert compare_run(diverged, none, later, evaluated()).text == BEYOND


def moved(change: float, more: float, status: str = "finished") -> str:
    """Of a row that came out `more` above its 0.8, where other last digits change so much."""
    elsewhere = ROW | {"device": "another"}
    judged = compare_run(ROW, evaluated(), elsewhere, evaluated(more=more))
    assert judged.text == BEYOND
    others = [(status, 0.8 + more + share * change) for share in (0.0, -0.2, 1.0, 0.5)]
    return explain_doubt(judged, ROW, others).text


@pytest.mark.parametrize("more", [0.02, -0.02])
def test_explain_doubt_rounding_sets_limit(more: float) -> None:
    assert moved(0.0, more) == moved(0.0049, more) == BEYOND
    assert moved(0.0051, more) == moved(-0.0051, more) == ROUNDING
    assert moved(0.0051, more, "diverged") == BEYOND


def test_explain_doubt_recurring_status_gives_rounding() -> None:
    gone = ROW | {"device": "another", "status": "diverged", "diverged_at": 3}
    for mine, best in ((evaluated(), 0.8), (evaluated()[:0], None)):
        judged = compare_run(ROW, evaluated(), gone, mine)
        assert judged.text == BEYOND
        assert explain_doubt(judged, ROW, [("diverged", best)] * 4).text == BEYOND
        assert explain_doubt(judged, ROW, [("finished", None)] * 4).text == BEYOND
        ends = [("diverged", best)] * 3 + [("finished", 0.81)]
        assert explain_doubt(judged, ROW, ends).text == ROUNDING


def test_rerun_within_tolerance_trains_once(monkeypatch) -> None:
    rates = []

    def train(cohort, runs, arrays, folder):
        (run,) = runs
        rates.append(run.learning_rate)
        best = 0.8 + 0.001 * (len(rates) - 1)
        rows = evaluated().assign(value=best).to_dict("records")
        return SimpleNamespace(runs=[ROW | {"device": "another"}], evaluations=rows)

    monkeypatch.setattr(rerun, "run_job", train)
    one = SimpleNamespace(row=ROW, cohort=None, run=Run("a", 0, 0.1, None, None))
    for stored, trained, said in ((0.802, 1, WITHIN), (0.78, 5, BEYOND), (0.79, 5, ROUNDING)):
        rates.clear()
        judged = rerun._rerun(one, evaluated().assign(value=stored), None)
        assert (judged.text, len(rates)) == (said, trained)
        assert rates[0] == 0.1
        assert len({np.float32(rate) for rate in rates}) == trained
        assert all(rate == pytest.approx(0.1, rel=1e-6) for rate in rates)


@pytest.mark.parametrize(("stored", "now"), [(1, 2), (2, 1), (1, 3), (None, 2), (3, 2), (2, 2)])
@pytest.mark.parametrize("more", [0.0, 0.3])
def test_compare_run_other_rng_version_unjudged(stored, now, more: float) -> None:
    elsewhere = {"device": "another", "rng_version": now}
    found = compare_run(
        ROW | {"rng_version": stored}, evaluated(), ROW | elsewhere, evaluated(more=more)
    )
    expected = EQUAL if more == 0 else BEYOND
    assert found.text == (expected if stored == now else OTHER_RNG)
