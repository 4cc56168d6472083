"""Defaults, history, progress and the end of a training."""

import inspect
import math
import signal
from dataclasses import fields

import numpy as np
import pytest
import torch
from tests.api.conftest import flat
from torch import nn

from oso_dp import OsoError, load_private, train_private
from oso_dp.api import progress_bar
from oso_dp.api.options import TrainingOptions
from oso_dp.methods import find_method
from oso_dp.privacy.queries import AutomaticGradient, ClippedGradient
from oso_dp.study.default_points import DEFAULTS
from oso_dp.training.loop import Training

SEEDED = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 6}


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda one: f"{one.method} {dict(one.variant)}")
def test_train_private_without_method_uses_recommended(train, monkeypatch, default):
    """Without a method, the recommended method, starting values and schedule are used."""
    monkeypatch.setattr("oso_dp.api.defaults.RECOMMENDED", default)
    made = train(method=None, **SEEDED)
    # AUTO-DoG begins with a rate of its own, which nobody could say.
    point = {} if default.method == "auto_dog" else default.point
    said = train(method=default.method, **default.variant, **point, **SEEDED)
    assert made.statement.method == default.method
    assert torch.equal(flat(made.model), flat(said.model))
    assert made.history == said.history


def test_training_options_defaults_match_train_private() -> None:
    """A search and a single training read their defaults from two places, which must agree."""
    said = inspect.signature(train_private).parameters
    usual = {one.name: one.default for one in fields(TrainingOptions) if one.name in said}
    left_open = {"method", "momentum", "schedule", "warmup", "averaging", "method_options"}
    assert usual.keys() >= left_open | {"epochs", "randomness", "precision"}
    for name in usual.keys() - left_open:
        assert usual[name] == said[name].default, name


def test_schedule_resumed_counts_earlier_steps(train) -> None:
    first = train(epsilon=2.0, schedule="linear", **(SEEDED | {"epochs": 2}))
    other = SEEDED | {"epochs": 2, "seed": 2}
    second = train(resume_from=first, epsilon=8.0, method=None, schedule="linear", **other)
    assert second.statement.method == "online"
    rho = np.array(second.history.learning_rate)
    # Online moves rho by less than a thousandth a step.
    assert rho == pytest.approx([1.0, 0.5, 0.5, 0.25], rel=0.02)


def test_averaging_matches_manual_average(train, model, tmp_path) -> None:
    """By hand: w_bar <- w_bar + (1 - min(d, (1 + t) / (10 + t))) (w_t - w_bar)."""
    weights = []
    step = Training.take_step

    def watched(training):
        step(training)
        weights.append(training.state.parameters[0].clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "take_step", watched)
        made = train(averaging=0.3, evaluate=lambda m: float(flat(m).sum()), **SEEDED)
        average = flat(model)
        for t, w in enumerate(weights, start=1):
            average = average + (1 - min(0.3, (1 + t) / (10 + t))) * (w - average)
        torch.testing.assert_close(flat(made.model), average, rtol=1e-5, atol=1e-6)
        assert made.history.score[-1] == pytest.approx(float(average.sum()), rel=1e-5, abs=1e-5)
        assert not torch.equal(flat(made.model), weights[-1])
        made.save(tmp_path / "m.oso")
        saved = load_private(tmp_path / "m.oso", model)
        torch.testing.assert_close(flat(saved.model), average, rtol=1e-5, atol=1e-6)
        further = SEEDED | {"seed": 2, "epochs": 1}
        on = train(resume_from=saved, epsilon=8.0, **further)
        average = average + (1 - min(0.3, 8 / 17)) * (weights[-1] - average)
        torch.testing.assert_close(flat(on.model), average, rtol=1e-5, atol=1e-6)
    with pytest.raises(OsoError, match="averaging: 0; must be > 0, as in resume_from"):
        train(resume_from=saved, epsilon=8.0, averaging=0.0, **further)


def test_schedule_and_averaging_cost_nothing(train) -> None:
    plain = train(**SEEDED)
    laid = train(schedule="linear", averaging=0.9, **SEEDED)
    assert laid.ledger.to_json() == plain.ledger.to_json()
    assert laid.epsilon == plain.epsilon


WHOLE = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 8}


GIVEN = {
    "online": {"momentum": 0.0, "learning_rate": 0.3, "learning_rate_rate": 0.1},
    "fixed_threshold": {"momentum": 0.0, "learning_rate": 0.3, "threshold": 0.5},
    "auto_s": {"momentum": 0.0, "learning_rate": 0.3},
    "auto_dog": {},
}


@pytest.mark.parametrize(
    ("method", "schedule"),
    [
        (method, schedule)
        for method in GIVEN
        for schedule in ("constant", "linear")
        if schedule == "constant" or find_method(method).supports_schedule
    ],
)
def test_take_step_moves_rate_times_gradient(
    method: str, schedule: str, train, monkeypatch
) -> None:
    lengths, released = [], []
    step = Training.take_step

    def measured(training: Training) -> None:
        seen, before = training.watch, training.state.parameters.clone()

        def watch(state, answers) -> None:
            released.append(answers.get(ClippedGradient, answers.get(AutomaticGradient)).norm())
            seen(state, answers)

        training.watch = watch
        step(training)
        training.watch = seen
        lengths.append((training.state.parameters - before).norm())

    monkeypatch.setattr(Training, "take_step", measured)
    made = train(method=method, schedule=schedule, **GIVEN[method], **WHOLE)
    rates = torch.tensor(made.history.learning_rate)
    stays = method in ("fixed_threshold", "auto_s") and schedule == "constant"
    assert (len(rates.unique()) == 1) == stays  # or any rate would do
    torch.testing.assert_close(
        torch.stack(lengths), rates * torch.stack(released), rtol=2e-3, atol=1e-6
    )


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set by the test; they begin far from zero."""
    time = [1000.5]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: time[0])
    return time


def said(bar: progress_bar.ProgressBar, clock, capsys, *steps: tuple[int, float]) -> list[str]:
    for step, seconds in steps:
        clock[0] = 1000.5 + seconds
        bar(step)
    return capsys.readouterr().err.splitlines()


def test_progress_bar_logs_every_ten_seconds(clock, capsys) -> None:
    bar = progress_bar.ProgressBar(100)
    steps = [(1, 1.0), (2, 9.9), (3, 10.0), (4, 12.0), (5, 19.9), (6, 20.5), (100, 21.0)]
    expected = ["step 3 of 100, 10 s", "step 6 of 100, 20 s", "step 100 of 100, 21 s"]
    assert said(bar, clock, capsys, *steps) == expected
    bar.end()
    assert capsys.readouterr().err == ""


def test_progress_bar_terminal_draws_bar(clock, capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress_bar.sys.stderr, "isatty", lambda: True)
    bar = progress_bar.ProgressBar(4)
    for step, seconds in ((1, 0.1), (2, 0.3), (3, 0.4), (4, 0.45)):
        clock[0] = 1000.5 + seconds
        bar(step)
    bar.end()
    lines = capsys.readouterr().err.split("\r")[1:]
    assert lines == [f"[{'#' * 15:<30}] step 2 of 4, 0 s", f"[{'#' * 30}] step 4 of 4, 0 s\n"]


FOUR_STEPS = {"batch_size": 400, "epochs": 4}


def test_load_private_gpu_model_accepted(train, model, tmp_path, monkeypatch) -> None:
    """A file whose tensors are tagged as on a GPU, as in older files, loads without a GPU."""
    made = train(**FOUR_STEPS)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    made.save(tmp_path / "of a gpu")
    monkeypatch.undo()
    back = load_private(tmp_path / "of a gpu", model)
    assert back.statement == made.statement
    back.save(tmp_path / "of a gpu")  # it is known as this training's
    more = train(resume_from=back, epsilon=4.0, **FOUR_STEPS)
    assert more.ledger.step_count == 8


def test_score_changes_leave_model_unchanged(search) -> None:
    def spoil(model: nn.Module) -> float:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        model.eval().half()
        return 0.5

    made = search(score=spoil)
    for one in (made.best.model, *(tried.model for tried in made.trials)):
        assert one.training
        assert all(p.dtype == torch.float32 and p.any() for p in one.parameters())


def test_search_private_bfloat16_model_scored(search, model, data) -> None:
    dtype = torch.bfloat16
    made = search(model=model.to(dtype), validation=data)
    assert 0.3 < made.score < 1.2
    assert {parameter.dtype for parameter in made.best.model.parameters()} == {dtype}


def test_ctrl_c_diverging_step_stays_diverged(train, monkeypatch) -> None:
    """After Ctrl-C in the step that diverges, the training cannot be resumed."""
    step = Training.take_step

    def interrupted(training: Training) -> None:
        step(training)
        signal.raise_signal(signal.SIGINT)

    breaks = {"method": "fixed_threshold", "threshold": 1e6, "learning_rate": 1e38}
    monkeypatch.setattr(Training, "take_step", interrupted)
    made = train(**breaks, **FOUR_STEPS)
    monkeypatch.undo()
    assert (made.status, made.ledger.step_count) == ("diverged", 1)
    with pytest.raises(OsoError, match="a training that diverged; start a new training"):
        train(resume_from=made, epsilon=4.0, **breaks, **FOUR_STEPS)


def test_ctrl_c_twice_raises_with_note(train, monkeypatch) -> None:
    step = Training.take_step

    def interrupted(training: Training) -> None:
        step(training)
        if training.state.step == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Training, "take_step", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(**FOUR_STEPS | {"epochs": 7})
    (note,) = caught.value.__notes__
    assert note.startswith(
        "2 steps were released before this error; if any of their output was seen, count"
    )
    assert "all 7 planned steps" in note


@pytest.mark.parametrize("method", ["online", "fixed_quantile"])
def test_train_private_unknown_cost_rejected_early(method: str, train) -> None:
    """Noise beyond the accountants' range is refused before the first step."""
    seen = []
    option = {
        "online": {"query_noise_ratio": 1e10},
        "fixed_quantile": {"quantile": 0.5, "count_noise": 1e10},
    }
    with pytest.raises(
        OsoError, match=r"query_noise_multiplier: .*; must be a number >= 0 and <= "
    ) as caught:
        train(method=method, **option[method], evaluate_every=1, callbacks=[seen.append], epochs=2)
    assert seen == []
    assert not hasattr(caught.value, "__notes__")


def test_ctrl_c_while_describing_names_steps(train, monkeypatch) -> None:
    """A Ctrl-C after the last step, while epsilon is computed, tells what was released."""

    def interrupted(*given, **more) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oso_dp.api.trainer.list_releases", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(**FOUR_STEPS)
    (note,) = caught.value.__notes__
    assert note.startswith("4 steps were released before this error")


def test_ctrl_c_ignored_stays_ignored(train) -> None:
    """A shell script ignores Ctrl-C in the background processes that it starts."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pressed = {"evaluate": lambda model: signal.raise_signal(signal.SIGINT) or 0.0}
        made = train(**pressed, evaluate_every=2, **FOUR_STEPS)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert made.status == "finished"


def test_history_diverged_step_rate_nan(train) -> None:
    made = train(method="auto_dog", scale=1e38, first_distance=1e30, **FOUR_STEPS)
    assert made.status == "diverged"
    assert math.isnan(made.history.learning_rate[-1])


def test_epochs_too_many_rejected(train) -> None:
    for epochs in (1e308, 1e9):
        with pytest.raises(OsoError, match=r"^epochs: .*; must be at most 1e\+09 steps$"):
            train(batch_size=1, epochs=epochs)


def test_search_private_error_counts_diverged_whole(search, data) -> None:
    def fail(model: nn.Module) -> float:
        raise RuntimeError("no score")

    with pytest.raises(RuntimeError, match="no score") as error:
        search(
            {"learning_rate": [1e38, 0.1]},
            method="fixed_threshold",
            threshold=1e6,
            epochs=4,
            score=fail,
        )
    assert "8 steps of 2 trainings of this search" in " ".join(error.value.__notes__)
