"""What a search's statement and numbers say, and that they stay with the model."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oso_dp import OsoError

MODES = []


class Noting(nn.Tanh):
    """Keeps in which mode it was last asked, the tests' eye on copies of a model."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        MODES[:] = [self.training]
        return super().forward(inputs)


@pytest.fixture
def scored(search, data):
    """On private examples; composition."""
    return search(validation=(data[0][:90], data[1][:90]), epsilon=2.0)


def test_what_the_validation_examples_paid_stays_when_training_goes_on(scored, train) -> None:
    best = scored.best
    more = train(resume_from=best, batch_size=400, epsilon=3.0)
    assert more.privacy_cost.scores == best.privacy_cost.scores
    for name in ("validation_epsilon", "validation_examples", "scored"):
        assert getattr(more.statement, name) == getattr(best.statement, name)
    assert 1.99 < more.statement.validation_epsilon <= 2.0
    assert more.statement.planned_steps == more.ledger.step_count == 2 + 16 // 8


def test_each_number_in_words_is_its_own(scored) -> None:
    statement = replace(scored.best.statement, epsilon=1.25, validation_epsilon=1.75)
    text = str(statement)
    assert text.startswith("(1.25, 1e-05)-differential privacy")
    assert "90 validation examples; each is protected by (1.75, 1e-05)" in text
    assert f"noise of standard deviation {scored.score_std:.2g}." in text


def test_no_number_in_words_is_a_rounder_one(scored) -> None:
    """Who computes epsilon from what is said finds no less, and no other delta."""
    numbers = {"epsilon": 1.25, "validation_epsilon": 1.75, "budget": 2.55}
    rates = {"delta": 1.4e-5, "sampling_rate": 0.0853333}
    text = str(replace(scored.best.statement, **numbers, **rates))
    assert "(1.25, 1.4e-05)-differential privacy, by " in text
    assert "each is protected by (1.75, 1.4e-05)-differential privacy" in text
    assert "the budget was epsilon 2.55." in text
    assert "at sampling rate 0.0853333 of 400 examples" in text


def test_it_is_said_that_other_trainings_come_on_top(scored, train) -> None:
    for statement in (scored.best.statement, train(epochs=0.25).statement):
        assert "their epsilons and deltas add up" in str(statement)


@pytest.mark.parametrize(
    "claim",
    [
        {"validation_epsilon": 0.5},
        {"validation_epsilon": None},
        {"validation_examples": 0},
        {"tuning": "included. One training."},
    ],
)
def test_a_statement_must_say_what_the_search_cost(scored, claim) -> None:
    best = scored.best
    assert best.statement.describes(best.privacy_cost)
    assert not replace(best.statement, **claim).describes(best.privacy_cost)


@pytest.mark.parametrize("name", ["epsilon", "validation_epsilon"])
@pytest.mark.parametrize("share", [1e-2, 1e-3, 1e-5, -1e-5])
def test_a_statement_may_not_be_a_little_off(scored, name, share) -> None:
    best = scored.best
    said = {name: getattr(best.statement, name) * (1 - share)}
    assert not replace(best.statement, **said).describes(best.privacy_cost)


def test_public_scores_have_no_noise(search) -> None:
    made = search({"learning_rate": [0.1]}, initial_threshold=0.7)
    assert (made.score, made.score_std) == (0.5, 0.0)
    assert made.trials[0].history.threshold[0] == pytest.approx(0.7)  # given beside the grid


def test_a_model_is_scored_at_rest_and_returned_as_it_was(search, data) -> None:
    modes = set()

    def right(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        modes.update(MODES)
        return 1.0

    model = nn.Sequential(nn.Linear(6, 4), Noting(), nn.Linear(4, 2))
    made = search({"learning_rate": [0.1]}, model=model, validation=data, metric=right)
    assert modes == {False}
    assert made.best.model.training


def test_a_score_that_is_no_number_is_one_line_and_says_what_was_released(search) -> None:
    with pytest.raises(OsoError, match="score: returned NoneType; must be a number") as error:
        search({"learning_rate": [0.1, 0.5]}, score=lambda model: None)
    assert "2 steps of 1 trainings" in error.value.__notes__[0]
