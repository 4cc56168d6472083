"""Runs that end one after the other: who is left keeps its own name, books, and rows."""

import torch

from oso_dp.training.loop import study_training


def test_runs_that_end_one_after_the_other_are_themselves(arrays, make_task, make_run) -> None:
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
