"""What a stored training may hold: of each thing that it cannot have come to, it is refused."""

import json
import math
from dataclasses import replace

import pytest

from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.loop import make_protocol, train
from oso_dp.training.outcome import RunProtocol


@pytest.fixture
def ended(arrays, make_task, make_run):
    """A course, and what a run of it came to."""
    task = make_task("online", evaluate_every=4)
    (outcome,) = train(task, [make_run("m")], arrays)
    course = make_protocol(task, task.metric, len(arrays.train_inputs))
    course.check([outcome], task.steps)
    return course, outcome, task.steps


def changed(outcome, place: int, **values):
    rows = [dict(row) for row in outcome.evaluations]
    rows[place] |= values
    other = replace(outcome)
    other.evaluations = rows
    return other


@pytest.mark.parametrize("place", [0, 3, -1])
@pytest.mark.parametrize(
    "values",
    [
        *({"run_id": name} for name in ("a", "z", "M", "")),
        *({"metric": name} for name in ("mse", "a", "z")),
        *({"value": value} for value in (-1e-9, 1 + 1e-9, math.nan, 1, True, None)),
        *({"loss": value} for value in (math.inf, -math.inf, math.nan, None, 2)),
        *({"threshold": value} for value in (-1e-9, math.inf, math.nan, "1")),
        *({"learning_rate": value} for value in (-1e-9, math.inf, 0)),
        *({"fraction_clipped": value} for value in (-math.inf, math.nan)),
        *({"class_accuracy": value} for value in ((0.5, 1.1), (math.nan,), [0.5], (1,), 0.5)),
        *({"step": value} for value in (0, 5, 10**9)),
        *({"split": value} for value in ("train", "Test")),
        {"more": 1.0},
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(ended, values, place: int) -> None:
    course, outcome, steps = ended
    with pytest.raises(ValueError, match="evaluation"):
        course.check([changed(outcome, place, **values)], steps)


@pytest.mark.parametrize(
    "values",
    [
        {"threshold": None},
        {"learning_rate": None},
        {"threshold": 0.0},
        *({"fraction_clipped": value} for value in (-0.3, 1.2, None)),  # sanitized: of any size
        *({"value": value} for value in (0.0, 1.0)),
        {"loss": -0.1},
        *({"class_accuracy": value} for value in (None, (0.0, None, 1.0))),
    ],
)
def test_what_can_be_is_not(ended, values) -> None:
    course, outcome, steps = ended
    course.check([changed(outcome, 0, **values)], steps)


@pytest.mark.parametrize("values", [{"wall_seconds": -1.0}, {"wall_seconds": math.nan}])
def test_nor_can_a_time_be_negative(ended, values) -> None:
    course, outcome, steps = ended
    with pytest.raises(ValueError, match="wall_seconds"):
        course.check([replace(outcome, **values)], steps)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"status": "finished", "diverged_at": 4}, "diverged_at 4"),
        ({"status": "diverged"}, "last step"),
        ({"status": "stopped"}, "status"),
        ({"status": "running"}, "closed ledger"),
        ({"ledger": ""}, "ledger"),
    ],
)
def test_an_end_that_cannot_be_is_refused(ended, values, said: str) -> None:
    course, outcome, steps = ended
    other = replace(outcome, **values)
    other.evaluations = outcome.evaluations
    with pytest.raises(ValueError, match=said):
        course.check([other], steps)


@pytest.mark.parametrize("factor", [1.01, 0.99, 1.001, 1.00001, 0.99999])
def test_a_ledger_of_slightly_other_noise_is_refused(ended, factor) -> None:
    """Of more noise epsilon would come out too low."""
    course, outcome, steps = ended
    stored = json.loads(outcome.ledger)
    for step in stored["steps"]:
        for query in step["queries"]:
            query["noise_multiplier"] *= factor
    with pytest.raises(ValueError, match="noise multiplier"):
        course.ledger(json.dumps(stored), steps)


@pytest.mark.parametrize("more", [-11, -1, 1, 10**6])
def test_a_ledger_of_fewer_or_more_steps_is_refused(ended, more: int) -> None:
    course, outcome, steps = ended
    stored = json.loads(outcome.ledger)
    stored["steps"][0]["count"] += more
    with pytest.raises(ValueError, match=f"its ledger has {steps + more} steps, not {steps}"):
        course.ledger(json.dumps(stored), steps)


@pytest.mark.parametrize("rate", [0.05, 0.0999999, 0.1000001, 1.0])
def test_a_ledger_of_another_sampling_rate_is_refused(ended, rate: float) -> None:
    """Of a lower rate epsilon would come out too low."""
    course, outcome, steps = ended
    stored = json.loads(outcome.ledger) | {"sampling_rate": rate}
    spoilt = replace(outcome, ledger=json.dumps(stored))
    with pytest.raises(ValueError, match="its ledger has sampling rate"):
        course.check([spoilt], steps)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 1.0 + 1e-5, 1.0 - 1e-5, 2.0])
def test_a_ledger_has_the_noise_in_every_kind_of_its_steps(factor: float, place: int) -> None:
    """Also in steps of which there are few, or that are booked last."""
    course = RunProtocol(PoissonSampling(0.1), 2.0, "accuracy", 9, 9)
    steps = [((SumQuery(name, 2.0),), 3) for name in "abc"]
    assert course.ledger(Ledger(course.sampling, steps).to_json(), 9).step_count == 9
    steps[place] = ((SumQuery("other", 2.0 * factor),), 3)
    with pytest.raises(ValueError, match="its ledger has noise multiplier"):
        course.ledger(Ledger(course.sampling, steps).to_json(), 9)
