"""What is reported at an evaluation is of that step and of that run."""

import math
from dataclasses import replace

import pytest
from tests.gradients.one_run import OneRun
from tests.privacy.helpers import batch_of

from oso_dp.training.loop import advance, study_training, train

# Next to no noise, so that the sanitized share shows the true one.
QUIET = {"noise_multiplier": 1e-6, "steps": 12, "evaluate_every": 1}


@pytest.mark.parametrize("name", ["fixed_quantile", "fixed_quantile_linear"])
def test_evaluate_fraction_clipped_matches_batch(name, arrays, make_task, make_run) -> None:
    """The fraction clipped is that of the step's and run's own batch, at the C before the step."""
    task = make_task(name, {"count_noise": 1e-6, "quantile_rate": 0.5}, **QUIET)
    starts = [make_run("a", 0, 0.1, 0.5), make_run("b", 1, 0.1, 2.0), make_run("c", 2)]
    training = study_training(task, starts, arrays)
    examples = training.problem.examples
    shares = []
    for step in range(1, QUIET["steps"] + 1):
        before = training.state.parameters.clone()
        thresholds = training.state.threshold.clone()
        training.take_step()
        training.evaluate()
        for run, start in enumerate(starts):
            batch = batch_of(training.mechanism.random_numbers, start.run_id, step)
            mine = OneRun(
                training.engine,
                before[run],
                examples.inputs[batch],
                examples.targets[batch],
            )
            clipped = int((mine.norms() > thresholds[run]).sum())
            # As the count is centred: an expected batch less half of what was drawn.
            expected = 0.5 + (clipped - len(batch) / 2) / task.batch_size
            (row, *_) = [r for r in training.outcomes[run].evaluations if r["step"] == step]
            assert row["fraction_clipped"] == pytest.approx(expected, abs=1e-3)
            assert row["threshold"] == pytest.approx(training.state.threshold[run].item())
            assert row["learning_rate"] == pytest.approx(0.1)
            shares.append(round(expected, 3))
    assert len(set(shares)) > 10


@pytest.mark.parametrize("rate", [0.1, 0.03])
def test_evaluate_learning_rate_excludes_schedule(rate, arrays, make_task, make_run) -> None:
    """The row omits the schedule's factor, which falls to a twelfth."""
    task = make_task("fixed_threshold", schedule="linear", **QUIET)
    (outcome,) = train(task, [make_run("a", 0, rate, 0.5)], arrays)
    rows = [row for row in outcome.evaluations if row["split"] == "test"]
    assert [row["step"] for row in rows] == list(range(1, QUIET["steps"] + 1))
    assert [row["learning_rate"] for row in rows] == pytest.approx([rate] * len(rows))


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", [0, 2])
def test_evaluate_nonfinite_loss_marks_run_diverged(
    loss, place, arrays, make_task, make_run
) -> None:
    task = make_task("fixed_threshold", steps=6, evaluate_every=2)
    training = study_training(task, [make_run(f"r{n}", n, 0.1, 0.5) for n in range(3)], arrays)
    scores, calls = training.problem.scores, []

    def spoilt(flat):
        calls.append(flat)
        found = scores(flat)
        if len(calls) == 4 + place:  # at the second evaluation, of step 4
            found[0] = replace(found[0], loss=loss)
        return found

    training.problem.scores = spoilt
    outcomes = advance(training)
    assert [one.status for one in outcomes] == [
        "diverged" if run == place else "finished" for run in range(3)
    ]
    assert [one.diverged_at for one in outcomes] == [
        4 if run == place else None for run in range(3)
    ]
    for run, one in enumerate(outcomes):
        steps = sorted({row["step"] for row in one.evaluations})
        assert steps == ([2] if run == place else [2, 4, 6])


def test_evaluate_fraction_clipped_none_without_count(arrays, make_task, make_run) -> None:
    for name in ("online", "fixed_threshold", "adam_wosm", "no_dp"):
        for row in train(make_task(name), [make_run()], arrays)[0].evaluations:
            assert row["fraction_clipped"] is None
