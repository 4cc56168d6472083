"""What a training ended in is what it goes on from, to the last digit, momentum and all."""

import copy

import pytest
import torch

from oso_dp import load_private
from oso_dp.training.loop import Training

METHODS = {
    "online": {"averaging": 0.9},
    "fixed_threshold": {"threshold": 1.0, "momentum": 0.5},
    "dp_adam": {"threshold": 1.0},
    "auto_dog": {},
    "fixed_quantile_per_layer": {"quantile": 0.5, "averaging": 0.5},
}


def flat(state: dict) -> dict:
    """By name, with what the method remembers; a state has no number that is not one but NaN."""
    parts = {name: value for name, value in state.items() if name != "buffers"}
    parts |= {f"memory of {name}": value for name, value in state["buffers"].items()}
    return {
        name: (value.dtype, value.shape, value.nan_to_num(nan=-123.0).tolist())
        if torch.is_tensor(value)
        else value
        for name, value in parts.items()
    }


@pytest.fixture(params=METHODS)
def made(request, train):
    given = {"method": request.param, "batch_size": 400, "epochs": 3, **METHODS[request.param]}
    return train(**given), given


def test_a_saved_training_comes_back_with_all_that_it_remembers(made, model, tmp_path) -> None:
    ended, _ = made
    assert any(value.any() for value in ended.state["buffers"].values())
    ended.save(tmp_path / "model")
    assert flat(load_private(tmp_path / "model", model).state) == flat(ended.state)


def test_further_steps_begin_with_all_that_was_remembered(made, train, monkeypatch) -> None:
    """But for the noise, which is that of what is left of the budget."""
    ended, given = made
    begun, go_on = [], Training.resume

    def noting(self, state, ledgers) -> None:
        begun.append((copy.deepcopy(vars(state)), state.noise_multiplier))
        go_on(self, state, ledgers)

    monkeypatch.setattr(Training, "resume", noting)
    more = train(resume_from=ended, epsilon=9.0, **given)
    ((state, noise),) = begun
    assert flat({**state, "noise_multiplier": 0}) == flat({**ended.state, "noise_multiplier": 0})
    assert more.state["noise_multiplier"] == noise != ended.state["noise_multiplier"]
    assert more.state["step"] == 2 * ended.state["step"] == 6
