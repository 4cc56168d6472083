"""The history has the rate with which each step moved, whenever the method sets it."""

import pytest
import torch

from oso_dp.methods import find_method, method_names
from oso_dp.privacy.queries import AutomaticGradient, ClippedGradient
from oso_dp.training.loop import Training

SEEDED = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 8, "momentum": 0.0}
GIVEN = {
    "online": {"learning_rate": 0.3, "learning_rate_rate": 0.1},
    "fixed_threshold": {"learning_rate": 0.3, "threshold": 0.5},
    "auto_s": {"learning_rate": 0.3},
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
def test_a_step_is_as_long_as_its_rate_times_what_was_released(
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
    made = train(method=method, schedule=schedule, **GIVEN[method], **SEEDED)
    rates = torch.tensor(made.history.learning_rate)
    stays = method in ("fixed_threshold", "auto_s") and schedule == "constant"
    assert (len(rates.unique()) == 1) == stays  # or any rate would do
    torch.testing.assert_close(
        torch.stack(lengths), rates * torch.stack(released), rtol=2e-3, atol=1e-6
    )


def test_who_sets_a_rate_before_it_moves_says_so() -> None:
    assert {n for n in method_names() if find_method(n).updates_rate_first} == {"auto_dog"}
