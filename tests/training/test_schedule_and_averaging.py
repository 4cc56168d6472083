"""A learning rate that falls, and an average of the iterates: laid over any method's steps."""

from dataclasses import replace

import pytest
import torch

from oso_dp.methods import method_names
from oso_dp.training.loop import study_training
from oso_dp.training.schedule_and_averaging import rate_factor, update_average

STEPS = 12


@pytest.mark.parametrize("steps", [1, 12, 3000])
def test_rate_factor_linear_decays_evenly(steps) -> None:
    factors = [rate_factor("linear", step, steps) for step in range(1, steps + 1)]
    assert factors[0] == 1
    assert factors[-1] == pytest.approx(1 / steps)
    parts = [a - b for a, b in zip(factors, [*factors[1:], 0], strict=True)]
    assert parts == pytest.approx([1 / steps] * steps)
    assert sum(factors) == pytest.approx((steps + 1) / 2)
    assert rate_factor(None, 7, steps) == 1


@pytest.mark.parametrize("name", method_names())
def test_take_step_scaled_by_rate_factor(name, arrays, make_task, make_run) -> None:
    moved = []
    for schedule in (None, "linear"):
        task = make_task(name, steps=4, evaluate_every=4, schedule=schedule)
        training = study_training(task, [make_run(), make_run("b", 1)], arrays)
        training.take_step()
        first = training.state.parameters.clone()
        training.take_step()
        moved.append((first, training.state.parameters - first))
    (one, full), (other, shorter) = moved
    assert torch.equal(one, other)
    assert full.norm() > 0
    torch.testing.assert_close(shorter, 0.75 * full, rtol=1e-4, atol=1e-7)


def test_update_average_warmup_forgets_initial_weights() -> None:
    """The average of constant weights converges to them, whatever the initial weights are."""
    average = torch.zeros(2, 3, dtype=torch.float64)
    ones = torch.ones(2, 3, dtype=torch.float64)
    weight = 1.0
    for step in range(1, 3001):
        average = update_average(average, ones, 0.99, step)
        weight *= min(0.99, (1 + step) / (10 + step))
        assert average.flatten().tolist() == pytest.approx([1 - weight] * 6, abs=1e-12)
    assert update_average(average, 0 * ones, 0.99, 3001).unique().tolist() == pytest.approx([0.99])
    assert 1 - weight == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999, 0.999999])
def test_update_average_decay_follows_warmup(decay: float) -> None:
    zeros, ones = (torch.full((2, 3), number, dtype=torch.float64) for number in (0.0, 1.0))
    for step in (1, 10, 1000, 10_000, 10**6, 10**9):
        kept = update_average(ones, zeros, decay, step)
        assert kept.unique().tolist() == pytest.approx([min(decay, (1 + step) / (10 + step))])


@pytest.mark.parametrize("schedule", [None, "linear"])
def test_averaging_changes_evaluated_parameters_only(schedule, arrays, make_task, make_run) -> None:
    task = make_task("online", averaging=0.9, schedule=schedule)
    runs = [make_run(), make_run("b", 1)]
    plain = study_training(replace(task, averaging=None), runs, arrays)
    training = study_training(task, runs, arrays)
    average = training.state.parameters.clone()
    for step in range(1, STEPS + 1):
        plain.take_step()
        training.take_step()
        assert torch.equal(plain.state.parameters, training.state.parameters)
        average = update_average(average, plain.state.parameters, 0.9, step)
        assert torch.equal(training.state.eval_parameters, average)
    training.evaluate()
    rows = training.outcomes[1].evaluations
    assert rows[0]["loss"] == training.problem.scores(average[1])[0].loss
    assert training.mechanism.ledgers[0].to_json() == plain.mechanism.ledgers[0].to_json()


@pytest.mark.parametrize("late", [999, 5000, 19_999])
def test_take_step_uses_late_step_number(late, arrays, make_task, make_run) -> None:
    task = make_task("online", steps=20_000, averaging=0.9995, schedule="linear")
    plain = replace(task, averaging=None, schedule=None)
    other, training = (study_training(one, [make_run()], arrays) for one in (plain, task))
    for one in (other, training):
        one.state.step = late - 1
        one.take_step()
    first = training.problem.initial_parameters
    moved = first.lerp(other.state.parameters, 1 - (late - 1) / 20_000)
    torch.testing.assert_close(training.state.parameters, moved, rtol=1e-6, atol=1e-7)
    expected = update_average(first, training.state.parameters, 0.9995, late)
    assert torch.equal(training.state.eval_parameters, expected)
