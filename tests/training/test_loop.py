"""The loop: equal to SGD without noise and clip; runs do not touch each other; kills do no harm."""

import copy
import json
import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.gradients.one_run import OneRun
from tests.privacy.helpers import batch_of

from oso_dp.data.arrays import Arrays
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.methods import find_method, method_names
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.training.loop import are_finite, study_training, train
from oso_dp.training.task import initial_parameters

STEPS = 12


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("schedule", [None, "linear"])
def test_take_step_without_noise_equals_sgd(
    arrays, make_task, make_run, momentum, schedule
) -> None:
    task = make_task("fixed_threshold", momentum=momentum, noise_multiplier=0.0, schedule=schedule)
    training = study_training(task, [make_run(c=1e9)], arrays)
    examples = training.problem.examples
    theta = torch.nn.Parameter(training.state.parameters[0].clone())
    optimizer = torch.optim.SGD([theta], lr=0.1, momentum=momentum)
    sampler = Mechanism(["a"], 200, 20)  # the same identity draws the same batches
    for step in range(1, STEPS + 1):
        if schedule:
            optimizer.param_groups[0]["lr"] = 0.1 * (STEPS - step + 1) / STEPS
        training.take_step()
        batch = batch_of(sampler.random_numbers, "a", step)
        outputs = training.engine.outputs(theta, examples.inputs[batch])
        total = torch.nn.functional.cross_entropy(outputs, examples.targets[batch], reduction="sum")
        optimizer.zero_grad()
        (total / 20).backward()
        optimizer.step()
    torch.testing.assert_close(training.state.parameters[0], theta.detach(), rtol=1e-4, atol=1e-5)


def test_take_step_padding_has_no_effect(arrays, make_task, make_run) -> None:
    """Batches are padded with the first example: its values may not show where it was not drawn."""
    left_out = next(
        name
        for name in "abcdefgh"
        if 0 not in batch_of(Mechanism([name], 200, 20).random_numbers, name, 1)
    )
    found = []
    for value in (0.5, 1e30):  # the second one's gradient is not finite
        inputs = arrays.train_inputs.copy()
        inputs[0] = value
        changed = Arrays(inputs, arrays.train_targets, arrays.test_inputs, arrays.test_targets)
        training = study_training(make_task("online"), [make_run(left_out)], changed)
        training.take_step()
        found.append(training.state.parameters)
    assert torch.equal(*found)


@pytest.mark.parametrize("name", ["fixed_quantile", "online", "fixed_threshold"])
def test_take_step_clips_with_previous_threshold(name, arrays, make_task, make_run) -> None:
    """A batch must not be clipped with the C that the same batch has moved."""
    task = make_task(name, momentum=0.0, noise_multiplier=1e-5)
    training = study_training(task, [make_run(rho=1.0, c=0.05)], arrays)
    examples = training.problem.examples
    for step in (1, 2, 3):
        start = training.state.parameters[0].clone()
        threshold, rho = training.state.threshold.item(), training.state.learning_rate.item()
        training.take_step()
        batch = batch_of(Mechanism(["a"], 200, 20).random_numbers, "a", step)
        gradients = OneRun(
            training.engine,
            start,
            examples.inputs[batch],
            examples.targets[batch],
        )
        weights = (threshold / gradients.norms()).clamp(max=1.0)
        expected = start - rho * gradients.weighted_sums(weights[None])[0] / 20
        torch.testing.assert_close(training.state.parameters[0], expected, rtol=1e-4, atol=1e-6)
    if name != "fixed_threshold":
        assert training.state.threshold.item() != pytest.approx(0.05, rel=1e-6)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", method_names())
def test_train_resumed_matches_uninterrupted(name, arrays, make_task, make_run, tmp_path) -> None:
    task, starts = make_task(name), [make_run("a"), make_run("b", 1)]
    whole = train(task, starts, arrays)
    path, kept = tmp_path / "state.pt", 0
    for killed_at in (1, 5, 8, 11, None):
        steps: list[int] = []

        def kill(step: int, at=killed_at, steps=steps) -> None:
            steps.append(step)
            if step == at:
                raise KilledError

        expected = pytest.raises(KilledError) if killed_at else nullcontext()
        with expected:
            resumed = train(
                task, starts, arrays, checkpoint=path, fingerprint="f", on_progress=kill
            )
        assert steps[0] == kept + 1  # goes on, does not start over
        kept = (killed_at or 0) // 4 * 4
    for one, other in zip(whole, resumed, strict=True):
        assert one.evaluations == other.evaluations
        assert one.ledger == other.ledger
        assert one.status == other.status == "finished"


def test_train_resumed_diverged_run_stays_diverged(arrays, make_task, make_run, tmp_path) -> None:
    """The run that continues keeps its own ledger and random stream."""
    task = make_task("fixed_threshold", momentum=0.0)
    starts = [make_run("diverges", rho=1e38), make_run("goes on", 1)]
    whole = train(task, starts, arrays)
    assert [outcome.status for outcome in whole] == ["diverged", "finished"]

    def kill(step: int) -> None:
        if step == 9:
            raise KilledError

    path = tmp_path / "state.pt"
    with pytest.raises(KilledError):
        train(task, starts, arrays, checkpoint=path, fingerprint="f", on_progress=kill)
    resumed = train(task, starts, arrays, checkpoint=path, fingerprint="f")
    for one, other in zip(whole, resumed, strict=True):
        assert (one.status, one.diverged_at) == (other.status, other.diverged_at)
        assert one.ledger == other.ledger
        assert one.evaluations == other.evaluations


@pytest.mark.parametrize("at", [3, 4])  # between two evaluations, and at one
@pytest.mark.parametrize("name", method_names())
def test_restore_after_divergence_matches_uninterrupted(
    name, at, arrays, make_task, make_run
) -> None:
    """The method's state is restored, since a restart would release its first steps twice."""
    schedule = "linear" if find_method(name).supports_schedule else None
    task = make_task(name, averaging=0.9, schedule=schedule)
    starts = [make_run(f"r{i}", i, 0.05, 1.0 + i) for i in range(3)]
    training, resumed = (study_training(task, starts, arrays) for _ in range(2))
    for step in range(1, 6):
        training.take_step()
        if step == at:
            training._drop_diverged(torch.tensor([True, False, True]))
        if step % task.evaluate_every == 0:
            training.evaluate()
    resumed.restore(copy.deepcopy(training.content()))
    assert resumed.alive == [0, 2]
    for one in (training, resumed):
        one.take_step()
    states = training.state, resumed.state
    for field in ("parameters", "average", "learning_rate", "threshold"):
        mine, theirs = (getattr(state, field) for state in states)
        assert torch.equal(mine.nan_to_num(), theirs.nan_to_num())
    assert training.mechanism.ledgers == resumed.mechanism.ledgers
    assert resumed.mechanism.ledgers[1].step_count == 6


def test_train_ledger_records_all_releases(arrays, make_task, make_run) -> None:
    outcome = train(make_task("online"), [make_run()], arrays)[0]
    ledger = json.loads(outcome.ledger)
    assert ledger["sampling_rate"] == 20 / 200
    assert [step["count"] for step in ledger["steps"]] == [STEPS]
    noise = {q["name"]: q["noise_multiplier"] for q in ledger["steps"][0]["queries"]}
    assert noise.keys() == {"clipped_gradient", "clipped_direction"}
    assert math.fsum(nu**-2 for nu in noise.values()) == pytest.approx(1.0)


def test_train_watch_receives_sanitized_answers(arrays, make_task, make_run) -> None:
    """The watch gets all answers before each update, and does not change the training."""
    task = make_task("fixed_threshold", momentum=0.0)
    starts = [make_run("a"), make_run("b", 1, 0.05)]
    seen = []

    def watch(state, answers) -> None:
        seen.append((state.step, state.parameters.clone(), answers[ClippedGradient].clone()))

    outcomes = train(task, starts, arrays, watch=watch)
    assert [step for step, _, _ in seen] == list(range(1, STEPS + 1))
    rho = torch.tensor([[0.1], [0.05]])
    for (_, before, answer), (_, after, _) in pairwise(seen):
        torch.testing.assert_close(after, before - rho * answer)
    alone = train(task, starts, arrays)
    assert [each.evaluations for each in outcomes] == [each.evaluations for each in alone]


def test_train_insufficient_noise_raises(arrays, make_task, make_run, monkeypatch) -> None:
    """The loop tells the mechanism what was budgeted, whatever the method asks for."""
    task = make_task("online")
    monkeypatch.setattr(
        type(task.method), "split_noise", lambda self, nu, batch_size: (nu, 10 * nu)
    )
    with pytest.raises(OsoError, match="must be >= the step's, 1"):
        train(task, [make_run()], arrays)


def test_train_evaluates_at_interval_and_end(arrays, make_task, make_run) -> None:
    outcome = train(make_task("online", steps=10), [make_run()], arrays)[0]
    assert sorted({row["step"] for row in outcome.evaluations}) == [4, 8, 10]
    assert {row["split"] for row in outcome.evaluations} == {"test", "test_even", "test_odd"}


@pytest.mark.parametrize("rho", [1e30, float("inf")])
def test_train_diverged_run_leaves_others_unchanged(rho, arrays, make_task, make_run) -> None:
    task = make_task("fixed_threshold")
    sound = [make_run("a"), make_run("c", 2)]
    wild = make_run("b", 1, rho)
    first, diverged, last = train(task, [sound[0], wild, sound[1]], arrays)
    assert diverged.status == "diverged"
    assert 1 <= diverged.diverged_at <= STEPS
    counted = sum(step["count"] for step in json.loads(diverged.ledger)["steps"])
    assert counted == diverged.diverged_at  # it is charged for what it released, no more
    alone = train(task, sound, arrays)
    for mixed, pure in zip([first, last], alone, strict=True):
        assert mixed.status == "finished"
        assert [row["loss"] for row in mixed.evaluations] == pytest.approx(
            [row["loss"] for row in pure.evaluations], rel=1e-4
        )


def test_add_seconds_divided_among_alive_runs(arrays, make_task, make_run) -> None:
    training = study_training(make_task("online"), [make_run(name) for name in "abc"], arrays)
    training.add_seconds(6.0, training.alive)
    training._drop_diverged(torch.tensor([True, False, True]))
    training.add_seconds(6.0, training.alive)
    assert [one.wall_seconds for one in training.outcomes] == [5.0, 2.0, 5.0]


@pytest.mark.parametrize("others", [0, 2])
def test_train_wall_seconds_stop_at_divergence(arrays, make_task, make_run, others) -> None:
    now = [0.0]
    task = make_task("fixed_threshold")
    runs = [make_run("gone", 0, math.inf), *(make_run(f"{n}", 1) for n in range(others))]

    def watch(state, answers) -> None:
        now[0] += 1.0

    outcomes = train(task, runs, arrays, watch=watch, clock=lambda: now[0])
    gone = outcomes[0]
    assert gone.status == "diverged"
    assert gone.wall_seconds == pytest.approx(gone.diverged_at / (1 + others))
    assert sum(one.wall_seconds for one in outcomes) == pytest.approx(now[0])


@pytest.mark.parametrize("poison", [1e38, 3e38])  # gradients that overflow; the loss, too
def test_train_divergence_ignores_training_examples(poison, arrays, make_task, make_run) -> None:
    """A run that stops at poisoned training examples would reveal them."""
    poisoned = arrays.train_inputs.copy()
    poisoned[:150] = poison
    broken = Arrays(poisoned, arrays.train_targets, arrays.test_inputs, arrays.test_targets)
    outcome = train(make_task("fixed_threshold"), [make_run()], broken)[0]
    assert outcome.status == "finished"


def test_initial_parameters_depend_on_seed(make_task) -> None:
    first, again = (initial_parameters(make_task(name), 3) for name in ("online", "no_dp"))
    assert torch.equal(first, again)
    assert not torch.equal(first, initial_parameters(make_task("online"), 4))


def test_initial_parameters_preserve_global_rng(make_task) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    initial_parameters(make_task("online"), 3)
    assert torch.equal(torch.rand(1), expected)


def test_evaluate_uses_test_set_only(arrays, make_task, make_run) -> None:
    """Metrics of training examples would be exact answers about them, in no ledger."""
    training = study_training(make_task("online"), [make_run()], arrays)
    for _ in range(4):
        training.take_step()
    training.evaluate()
    outputs = training.engine.outputs(
        training.state.parameters[0], torch.from_numpy(arrays.test_inputs)
    )
    hits = outputs.argmax(dim=1).numpy() == arrays.test_targets
    rows = {row["split"]: row["value"] for row in training.outcomes[0].evaluations}
    expected = {"test": hits, "test_even": hits[::2], "test_odd": hits[1::2]}
    assert rows == pytest.approx({split: each.mean() for split, each in expected.items()})


def test_train_checkpoint_without_fingerprint_raises(arrays, make_task, make_run, tmp_path) -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        train(make_task("online"), [make_run()], arrays, checkpoint=tmp_path / "state.pt")


def test_are_finite_detects_nonfinite_rows() -> None:
    large = torch.finfo(torch.float32).max
    rows = [
        ([1.0, 2.0], True),
        ([large, large], True),
        ([-large, -large], True),
        ([math.inf, 1.0], False),
        ([math.inf, -math.inf], False),
        ([math.nan, 0.0], False),
    ]
    for parameters, expected in rows:
        assert are_finite(torch.tensor([parameters])).tolist() == [expected]
    assert are_finite(torch.tensor([row for row, _ in rows])).tolist() == [each for _, each in rows]


@pytest.mark.parametrize("lacks", range(3))
def test_study_training_missing_threshold_raises(lacks, arrays, make_task, make_run) -> None:
    runs = [make_run(f"run {number}") for number in range(3)]
    runs[lacks] = replace(runs[lacks], threshold=None)
    with pytest.raises(
        OsoError, match="method 'fixed_threshold': clips at a threshold, but a run has none"
    ):
        study_training(make_task("fixed_threshold"), runs, arrays)


def test_study_training_changing_queries_raises(arrays, make_task, make_run, monkeypatch) -> None:
    task = make_task("fixed_threshold")
    monkeypatch.setattr(
        type(task.method), "queries", lambda self, state: state.threshold.mul_(2) and ()
    )
    with pytest.raises(OsoError, match=r"`queries` changes state\.threshold"):
        study_training(task, [make_run()], arrays)


@pytest.mark.parametrize("name", method_names())
def test_train_joint_runs_equal_separate(name, make_task, make_run) -> None:
    """Runs whose batches need different widths store the same rows together as alone."""
    random = np.random.default_rng(0)
    words = (random.random((640, 750)) < 0.05).astype(np.float32)
    classes = random.integers(4, size=640)
    arrays = Arrays(words[:600], classes[:600], words[600:], classes[600:])
    starts = [make_run(f"r{i}", i, 0.2 + 0.05 * i, 0.3 + i % 2) for i in range(5)]
    task = make_task(name, model="bag_of_words", batch_size=192, steps=4)
    together = train(task, starts, arrays)
    for start, one in zip(starts, together, strict=True):
        (other,) = train(task, [start], arrays)
        assert one.evaluations == other.evaluations != []
        assert one.ledger == other.ledger


def test_take_step_successive_divergences_keep_ledgers(arrays, make_task, make_run) -> None:
    runs = [make_run(name, seed) for seed, name in enumerate("abcde")]
    training = study_training(make_task("online"), runs, arrays)
    for ending in ([1], [0, 2], []):  # places among those that go on
        training.state.parameters[ending] = torch.nan
        training.take_step()
    assert training.alive == [2, 4]
    assert training.mechanism.run_ids == ["c", "e"]
    assert [one.diverged_at for one in training.outcomes] == [2, 1, None, 2, None]
    books = [training.ledger(place) for place in range(5)]
    assert [one.step_count for one in books] == [2, 1, 3, 2, 3]
    kept = training.mechanism.ledgers  # alike, and each one's own
    assert [books[2] is kept[0], books[4] is kept[1]] == [True, True]
    training.end(range(2), "finished")
    ended = ["diverged", "diverged", "finished", "diverged", "finished"]
    assert [one.status for one in training.outcomes] == ended


@pytest.fixture
def dropping(arrays, make_task, make_run, monkeypatch):
    """Training of some runs of a model with dropout, in microbatches."""

    def build(*_) -> torch.nn.Module:
        layers = torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(196, 10)
        return torch.nn.Sequential(*layers)

    monkeypatch.setattr("oso_dp.training.task.build_model", build)
    task = make_task("fixed_threshold", microbatch_size=8)
    return lambda names="abcdef": study_training(task, [make_run(name) for name in names], arrays)


def test_take_step_dropout_seeds_differ(dropping, monkeypatch) -> None:
    """Each run, step and microbatch has its own seed; an equal training repeats the seeds."""
    seeds: list[int | None] = []
    call = GradientEngine.__call__

    def noting(self, flat, inputs, targets, absent, seed):
        assert len(flat) == 1
        seeds.append(seed)
        return call(self, flat, inputs, targets, absent, seed)

    for _ in range(2):
        training = dropping()
        with monkeypatch.context() as patched:
            patched.setattr(GradientEngine, "__call__", noting)
            for _ in range(2):
                training.take_step()
    first, again = seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :]
    assert first == again
    assert None not in first
    assert len(first) == len({*first}) >= 6 * 2 * 2


def test_take_step_dropout_ignores_other_runs(dropping) -> None:
    together, alone = dropping(), dropping("d")
    for training in (together, alone):
        training.take_step()
        training.take_step()
    assert torch.equal(together.state.parameters[3], alone.state.parameters[0])


def test_restore_with_dropout_matches_uninterrupted(dropping) -> None:
    whole, resumed = dropping(), dropping()
    whole.take_step()
    resumed.restore(copy.deepcopy(whole.content()))
    for training in (whole, resumed):
        training.take_step()
    assert torch.equal(whole.state.parameters, resumed.state.parameters)
