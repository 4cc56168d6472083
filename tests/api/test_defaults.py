"""What `train_private` does where little is said: the default way, a schedule, an average."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from oso_dp import load_private, train_private
from oso_dp.api.options import TrainingOptions
from oso_dp.errors import OsoError
from oso_dp.study.default_points import DEFAULTS, RECOMMENDED
from oso_dp.training.loop import Training

SEEDED = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 6}


def flat(model: nn.Module) -> torch.Tensor:
    return parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda one: f"{one.method} {dict(one.variant)}")
def test_without_a_method_it_is_the_recommended_default_in_whole(train, monkeypatch, default):
    """Whichever that is: its method, its starting values and its schedule."""
    monkeypatch.setattr("oso_dp.api.defaults.RECOMMENDED", default)
    made = train(method=None, **SEEDED)
    # AUTO-DoG begins with a rate of its own, which nobody could say.
    point = {} if default.method == "auto_dog" else default.point
    said = train(method=default.method, **default.variant, **point, **SEEDED)
    assert made.statement.method == default.method
    assert torch.equal(flat(made.model), flat(said.model))
    assert made.history == said.history


def test_what_is_recommended_is_one_of_the_defaults_that_are_compared() -> None:
    assert RECOMMENDED in DEFAULTS


def test_a_search_trains_as_one_training_does_where_nothing_is_said() -> None:
    """Two places hold what is usual; a search reads one of them, a single training the other."""
    said = inspect.signature(train_private).parameters
    usual = {one.name: one.default for one in fields(TrainingOptions) if one.name in said}
    left_open = {"method", "momentum", "schedule", "averaging", "method_options"}  # `way` decides
    assert usual.keys() >= left_open | {"epochs", "randomness", "precision"}
    for name in usual.keys() - left_open:
        assert usual[name] == said[name].default, name


def test_a_schedule_may_be_said_without_a_method(train) -> None:
    for schedule, last in (("constant", 1), ("linear", 1 / 6)):
        rates = train(method=None, schedule=schedule, **SEEDED).history.learning_rate
        assert rates[-1] == pytest.approx(last * rates[0], rel=0.05)  # Online moves it, too


def test_a_falling_rate_reaches_one_step_above_zero_and_moves_by_what_the_history_says(train):
    given = {"method": "fixed_threshold", "threshold": 0.5, "learning_rate": 0.4, "momentum": 0.0}
    weights = []
    step = Training.take_step

    def watched(training):
        before = training.state.parameters.clone()
        step(training)
        weights.append(float((training.state.parameters - before).norm()))

    for schedule in ("constant", "linear"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Training, "take_step", watched)
            made = train(schedule=schedule, **given, **SEEDED)
    constant, falling = weights[:6], weights[6:]
    assert made.history.learning_rate == pytest.approx(0.4 * np.arange(6, 0, -1) / 6)
    assert falling[0] == pytest.approx(constant[0], rel=1e-5)
    assert falling[-1] < 0.5 * constant[-1]


def test_a_schedule_falls_over_all_steps_also_those_of_before(train) -> None:
    first = train(epsilon=2.0, schedule="linear", **(SEEDED | {"epochs": 2}))
    other = SEEDED | {"epochs": 2, "seed": 2}
    second = train(resume_from=first, epsilon=8.0, method=None, schedule="linear", **other)
    assert second.statement.method == "online"
    rho = np.array(second.history.learning_rate)
    # Online moves rho by less than a thousandth a step.
    assert rho == pytest.approx([1.0, 0.5, 0.5, 0.25], rel=0.02)


def test_the_average_is_what_is_returned_saved_and_gone_on_from(train, model, tmp_path) -> None:
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


def test_neither_costs_anything(train) -> None:
    plain = train(**SEEDED)
    laid = train(schedule="linear", averaging=0.9, **SEEDED)
    assert laid.ledger.to_json() == plain.ledger.to_json()
    assert laid.epsilon == plain.epsilon
