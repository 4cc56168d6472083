"""Trainings that end in odd ways, files of other devices, scores that change what they look at."""

import math
import signal

import pytest
import torch
from torch import nn

from oso_dp import OsoError, load_private
from oso_dp.training.loop import Training

WHOLE = {"batch_size": 400, "epochs": 4}


def test_a_model_that_was_trained_on_a_gpu_loads_without_one(
    train, model, tmp_path, monkeypatch
) -> None:
    """A file whose tensors say that they were there, as older files do."""
    made = train(**WHOLE)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    made.save(tmp_path / "of a gpu")
    monkeypatch.undo()
    assert not torch.cuda.is_available() or torch.version.cuda
    back = load_private(tmp_path / "of a gpu", model)
    assert back.statement == made.statement
    back.save(tmp_path / "of a gpu")  # it is known as this training's
    more = train(resume_from=back, epsilon=4.0, **WHOLE)
    assert more.ledger.step_count == 8


def test_a_score_may_do_what_it_likes_to_its_copy(search) -> None:
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_types_are_scored_as_they_are_trained(search, model, data, dtype) -> None:
    made = search(model=model.to(dtype), validation=data)
    assert 0.3 < made.score < 1.2
    assert {parameter.dtype for parameter in made.best.model.parameters()} == {dtype}


def test_ctrl_c_in_the_step_that_diverges_is_no_interruption(train, monkeypatch) -> None:
    """There is nothing left that could go on."""
    step = Training.take_step

    def interrupted(training: Training) -> None:
        step(training)
        signal.raise_signal(signal.SIGINT)

    breaks = {"method": "fixed_threshold", "threshold": 1e6, "learning_rate": 1e38}
    monkeypatch.setattr(Training, "take_step", interrupted)
    made = train(**breaks, **WHOLE)
    monkeypatch.undo()
    assert (made.status, made.ledger.step_count) == ("diverged", 1)
    with pytest.raises(OsoError, match="a training that diverged; start a new training"):
        train(resume_from=made, epsilon=4.0, **breaks, **WHOLE)


def test_a_second_ctrl_c_ends_it_at_once_and_says_what_was_released(train, monkeypatch) -> None:
    step = Training.take_step

    def interrupted(training: Training) -> None:
        step(training)
        if training.state.step == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Training, "take_step", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(**WHOLE | {"epochs": 7})
    (note,) = caught.value.__notes__
    assert note.startswith(
        "2 steps were released before this error; if any of their output was seen, count"
    )
    assert "all 7 planned steps" in note


def test_ctrl_c_that_somebody_ignores_stays_ignored(train) -> None:
    """As a shell's script does for what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pressed = {"evaluate": lambda model: signal.raise_signal(signal.SIGINT) or 0.0}
        made = train(**pressed, evaluate_every=2, **WHOLE)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert made.status == "finished"


def test_the_rate_of_a_step_that_diverged_is_not_that_of_before(train) -> None:
    made = train(method="auto_dog", scale=1e38, first_distance=1e30, **WHOLE)
    assert made.status == "diverged"
    assert math.isnan(made.history.learning_rate[-1])


def test_more_steps_than_anybody_prices_are_refused(train) -> None:
    for epochs in (1e308, 1e9):
        with pytest.raises(OsoError, match=r"^epochs: .*; must be at most 1e\+09 steps$"):
            train(batch_size=1, epochs=epochs)


def test_an_error_in_a_search_says_what_diverged_before_whole(search, data) -> None:
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
