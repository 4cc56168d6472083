"""A training that ended early costs what was planned: its end may tell of what it released."""

import signal
from dataclasses import replace

import pytest
from torch import nn

from oso_dp import load_private
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.formatting import format_spent_epsilon

BREAKS = {"method": "fixed_threshold", "threshold": 1e6}


def interrupt(model: nn.Module) -> float:
    signal.raise_signal(signal.SIGINT)
    return 0.0


HOW = {
    "diverged": {"learning_rate": 1e38, **BREAKS},
    "interrupted": {"evaluate": interrupt, "evaluate_every": 1},
}


@pytest.mark.parametrize("status", HOW)
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_epsilon_is_that_of_the_planned_steps(train, status, accountant) -> None:
    """The same whenever it ended, and within the budget to the last digit."""
    whole = {"batch_size": 400, "epochs": 4, "accountant": accountant}
    made = train(**HOW[status], **whole)
    assert made.status == status
    assert (made.ledger.step_count, made.privacy_cost.unused_step_count) == (1, 3)
    finished = train(**{**HOW[status], "learning_rate": 0.1, "evaluate": None}, **whole)
    assert (finished.status, finished.privacy_cost.unused_steps) == ("finished", None)
    assert made.epsilon == pytest.approx(finished.epsilon, rel=1e-9)
    assert 2.99 < made.epsilon <= 3.0
    assert compute_epsilon([made.ledger], 1e-5, accountant) < 2.0
    text = str(made.statement)
    assert "Released: 1 of 4 steps" in text
    assert "Epsilon counts 3 more steps, which were planned but not taken" in text
    assert "Epsilon counts" not in str(finished.statement)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_what_the_steps_cost_that_were_made_is_said_by_the_accountant_that_was_named(
    train, accountant, capsys
) -> None:
    whole = {"batch_size": 400, "epochs": 4, "accountant": accountant, "progress": True}
    made = train(**HOW["interrupted"], **whole)
    cost = format_spent_epsilon(compute_epsilon([made.ledger], 1e-5, accountant))
    planned = format_spent_epsilon(made.epsilon)
    said = " ".join(capsys.readouterr().err.split())
    assert f"stopped at step 1 of 4: these steps cost epsilon {cost} of 3, at delta 1e-05" in said
    assert f"the statement's {planned} counts all planned steps" in said
    assert cost != planned


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_validation_examples_are_priced_by_the_accountant_that_was_named(
    search, data, accountant
) -> None:
    best = search(validation=data, accountant=accountant).best
    spent = best.statement.validation_epsilon
    assert spent == pytest.approx(compute_epsilon([best.privacy_cost.scores], 1e-5, accountant))
    assert 2.99 < spent <= 3.0


def test_what_a_stopped_training_left_unmade_can_be_spent_and_is_said(train) -> None:
    begun = train(**HOW["interrupted"], batch_size=400, epochs=4)
    more = train(resume_from=begun, batch_size=400, epochs=9)
    assert more.ledger.step_count == 10
    assert more.privacy_cost.unused_steps is None
    assert 2.99 < more.epsilon <= 3.0
    assert more.statement.resumed
    assert train(resume_from=more, batch_size=400, epsilon=4.0).statement.resumed  # for good
    again = train(resume_from=begun, batch_size=400, epochs=9, **HOW["interrupted"])
    assert (again.ledger.step_count, again.privacy_cost.unused_step_count) == (2, 8)
    assert 2.99 < again.epsilon <= 3.0


def test_each_training_of_a_search_counts_whole(search) -> None:
    grid = {"learning_rate": [0.1, 1e38, 0.2]}
    best = search(grid, epochs=3, **BREAKS).best
    assert best.privacy_cost.unused_steps is None
    assert [ledger.step_count for ledger in best.privacy_cost.ledgers()] == [3, 3, 3]
    assert 2.99 < best.epsilon <= 3.0
    with pytest.warns(UserWarning, match="score: no training of this search has one"):
        gone = search({"learning_rate": [1e38, 2e38]}, epochs=3, **BREAKS).best
    assert (gone.status, gone.ledger.step_count, gone.privacy_cost.unused_step_count) == (
        "diverged",
        1,
        2,
    )
    assert 2.99 < gone.epsilon <= 3.0


def test_a_search_that_was_stopped_counts_what_it_never_began(search, train) -> None:
    """Three trainings of four steps; somebody stops the second after its first step."""
    calls = []

    def evaluate(model: nn.Module) -> float:
        calls.append(model)
        return interrupt(model) if len(calls) == 5 else 0.0

    best = search(epochs=4, evaluate=evaluate, evaluate_every=1).best
    assert [ledger.step_count for ledger in best.privacy_cost.ledgers()] == [4, 1]
    assert best.privacy_cost.unused_step_count == best.statement.unused_steps == 3 + 4
    assert 2.99 < best.epsilon <= 3.0
    more = train(resume_from=best, batch_size=400, epochs=7)
    assert more.privacy_cost.unused_steps is None
    assert more.statement.resumed
    assert 2.99 < more.epsilon <= 3.0


def test_what_diverged_in_a_search_counts_for_good(search, train) -> None:
    grid = {"learning_rate": [0.1, 1e38]}
    best = search(grid, epochs=3, epsilon=2.0, **BREAKS).best
    more = train(resume_from=best, batch_size=400, epochs=3, **BREAKS)
    assert [ledger.step_count for ledger in more.privacy_cost.ledgers()] == [6, 3]


def test_every_candidates_score_counts(search, data) -> None:
    """That one has none depends on a training that may have seen the same people."""
    grid = {"learning_rate": [0.1, 1e38]}
    best = search(grid, **BREAKS, validation=data).best
    assert best.privacy_cost.scores.step_count == 2
    assert 2.99 < best.statement.validation_epsilon <= 3.0


@pytest.fixture
def saved(train, model, tmp_path):
    made = train(**HOW["interrupted"], batch_size=400, epochs=4)
    made.save(tmp_path / "a model")
    return made, tmp_path / "a model"


def test_it_is_saved_and_held_against_the_ledger(saved, model) -> None:
    made, path = saved
    back = load_private(path, model)
    assert (back.statement, back.privacy_cost) == (made.statement, made.privacy_cost)
    assert not replace(made.statement, unused_steps=0).describes(made.privacy_cost)
    assert not made.statement.describes(replace(made.privacy_cost, unused_steps=None))
