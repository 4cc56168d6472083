"""What a run that was trained again is called, by what is the same and what came out."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from oso_dp.results.read import read_results
from oso_dp.verification.again import deviations
from oso_dp.verification.verdict import (
    BEYOND,
    CHANGED,
    EQUAL,
    NOT_EQUAL,
    OTHER_DRAWS,
    SPREAD,
    WITHIN,
    judge,
    near,
)

ROW = {
    "run_id": "a",
    "device": "some CPU (1 thread)",
    "torch_version": "2.13.0",
    "precision": "float32",
    "streams": 2,
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
        }
        for (step, value), split in product(
            zip([50, 75], best, strict=True), ["test", "test_even", "test_odd"]
        )
    ]
    return pd.DataFrame(rows)


def verdict(more: float = 0.0, metric: str = "accuracy", **changed) -> str:
    return judge(ROW, evaluated(metric), ROW | changed, evaluated(metric, more)).text


@pytest.mark.parametrize("changed", [{}, {"code_hash": "other"}, {"device": "another"}])
def test_equal_numbers_are_equal_wherever_they_come_from(changed) -> None:
    assert verdict(**changed) == EQUAL


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, NOT_EQUAL),
        ({"code_hash": "other"}, CHANGED),
        ({"device": "some CPU (2 threads)"}, WITHIN),
        ({"torch_version": "2.14.0"}, WITHIN),
        ({"device": "another", "code_hash": "other"}, WITHIN),
        ({"streams": 1}, OTHER_DRAWS),
    ],
)
def test_one_digit_that_differs(changed, said: str) -> None:
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
def test_the_tolerance_is_for_the_best_test_value(changed, metric, more, said) -> None:
    assert (verdict(more, metric, **changed) == BEYOND) == said


@pytest.mark.parametrize("column", ["value", "loss", "threshold", "learning_rate"])
def test_every_number_counts(column: str) -> None:
    others = evaluated()
    others.loc[4, column] = np.nextafter(others.loc[4, column], 2.0)
    assert judge(ROW, evaluated(), ROW, others).text == NOT_EQUAL


def test_evaluations_that_are_missing_or_new_are_not_equal() -> None:
    assert judge(ROW, evaluated(), ROW, evaluated()[:-1]).text == NOT_EQUAL
    more = pd.concat([evaluated(), evaluated()[:1].assign(step=99)], ignore_index=True)
    assert judge(ROW, evaluated(), ROW, more).text == NOT_EQUAL


def test_their_order_does_not_count() -> None:
    assert judge(ROW, evaluated(), ROW, evaluated()[::-1]).text == EQUAL


def test_another_end_is_beyond_any_tolerance() -> None:
    assert verdict(more=1e-7, status="diverged", diverged_at=3, device="another") == BEYOND
    assert verdict(status="diverged", diverged_at=3) == NOT_EQUAL
    diverged = ROW | {"status": "diverged", "diverged_at": 3}
    later = diverged | {"diverged_at": 4, "device": "another"}
    none = evaluated()[:0]
    assert judge(diverged, none, diverged, none).text == EQUAL
    assert judge(diverged, none, later, none).text == WITHIN
    assert judge(diverged, none, later, evaluated()).text == BEYOND


def test_the_best_is_the_highest_accuracy_and_the_least_error() -> None:
    for metric, best in (("accuracy", 0.8), ("mse", 0.02)):
        judged = judge(ROW, evaluated(metric), ROW, evaluated(metric, 0.01))
        assert judged.stored == best
        assert judged.again == pytest.approx(best + 0.01)
    assert near("accuracy", None, None)
    assert not near("accuracy", 0.5, None)


@pytest.mark.parametrize(("more", "said"), [(0.029, SPREAD), (-0.029, SPREAD), (0.031, BEYOND)])
def test_where_rounding_decides_the_seeds_spread_is_the_limit(more: float, said: str) -> None:
    again = evaluated(more=more)
    elsewhere = ROW | {"device": "another"}
    assert judge(ROW, evaluated(), elsewhere, again, 0.01).text == said
    assert judge(ROW, evaluated(), elsewhere, again).text == BEYOND
    assert judge(ROW, evaluated(), ROW, again, 0.01).text == NOT_EQUAL
    ended = elsewhere | {"status": "diverged"}
    assert judge(ROW, evaluated(), ended, again, 0.01).text == BEYOND


def test_the_spread_is_that_of_the_seeds_of_a_point(repo) -> None:
    """Of the real store: each run's, by hand from its neighbours."""
    results = read_results(repo / "results")
    spread = deviations(results)
    assert spread.keys() == set(results.runs["run_id"])
    runs = results.runs[results.runs["dataset"] == "ag_news_partial"]
    own = runs[(runs["method"] == "online") & (runs["epsilon"] == 3.0) & (runs["k"] == 5)]
    assert len(own) >= 25
    for _, point in own.groupby(["learning_rate", "selection", "settings"], dropna=False):
        test = results.evaluations[results.evaluations["split"] == "test"]
        best = [test.loc[test["run_id"] == run, "value"].max() for run in point["run_id"]]
        expected = pytest.approx(np.std(best, ddof=1))
        assert all(spread[run] == expected for run in point["run_id"])
