"""When a stored training may have ended: with books and evaluations of just so many steps."""

import pytest

from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.evaluate import SPLITS
from oso_dp.training.outcome import Outcome, RunProtocol

STEPS = 9
NOISE = 2.0
DUE = {1: range(1, 10), 4: (4, 8, 9), 9: (9,), 50: (9,)}  # by how often is evaluated


def course(every: int) -> RunProtocol:
    return RunProtocol(PoissonSampling(0.1), NOISE, "accuracy", STEPS, every)


def books(steps: int) -> str:
    return Ledger(PoissonSampling(0.1), [((SumQuery("clipped_gradient", NOISE),), steps)]).to_json()


def outcome(steps, **values) -> Outcome:
    """With an evaluation after each of these steps."""
    one = Outcome("a", **values)
    for step in steps:
        for split in SPLITS:
            state = dict.fromkeys(
                ("threshold", "learning_rate", "fraction_clipped", "class_accuracy")
            )
            row = {"run_id": "a", "step": step, "split": split, "metric": "accuracy"}
            one.evaluations.append({**row, "value": 0.5, "loss": 1.5, **state})
    return one


def finished(every: int, steps: int) -> Outcome:
    due = [step for step in DUE[every] if step <= steps]
    return outcome(due, status="finished", ledger=books(steps))


def diverged(every: int, at: int) -> Outcome:
    due = [step for step in DUE[every] if step < at]
    return outcome(due, status="diverged", diverged_at=at, ledger=books(at))


@pytest.mark.parametrize("every", DUE)
def test_a_run_that_finished_was_evaluated_when_due_and_at_its_end(every: int) -> None:
    course(every).check([finished(every, STEPS)], STEPS)
    for wrong in ([], DUE[every][:-1], range(2, 10)):
        one = outcome(wrong, status="finished", ledger=books(STEPS))
        with pytest.raises(ValueError, match="its evaluations are not those of 9 steps"):
            course(every).check([one], STEPS)


@pytest.mark.parametrize("every", DUE)
@pytest.mark.parametrize("steps", [1, 4, 8])
def test_no_run_finishes_before_its_last_step(every: int, steps: int) -> None:
    """Whatever its books say: fewer steps than planned would pass for all."""
    early = finished(every, steps)
    with pytest.raises(ValueError, match=f"status 'finished' after step {steps} of 9"):
        course(every).check([early], steps)


@pytest.mark.parametrize("every", DUE)
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_a_run_diverges_at_a_step_that_was_taken(every: int, at: int) -> None:
    one = diverged(every, at)
    for step in range(1, STEPS + 1):
        if step >= at:
            course(every).check([one], step)
        else:
            with pytest.raises(ValueError, match=f"its last step is {at}"):
                course(every).check([one], step)


@pytest.mark.parametrize("every", DUE)
@pytest.mark.parametrize("beyond", [1, 2, 41])
def test_no_run_is_at_a_step_beyond_its_last(every: int, beyond: int) -> None:
    at = STEPS + beyond
    due = [step for step in range(1, at + 1) if step % every == 0 or step == STEPS]
    for one in (
        outcome(due),
        outcome(due[:-1], status="diverged", diverged_at=at, ledger=books(at)),
        outcome(due, status="finished", ledger=books(at)),
    ):
        with pytest.raises(ValueError, match=f"its last step is {at}"):
            course(every).check([one], at)
