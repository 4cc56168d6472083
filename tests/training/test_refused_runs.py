"""Runs that train side by side: what one of them lacks is not made up by the others."""

from dataclasses import replace

import pytest

from oso_dp.errors import OsoError
from oso_dp.training.loop import study_training


@pytest.mark.parametrize("lacks", range(3))
def test_no_run_clips_without_a_threshold(lacks, arrays, make_task, make_run) -> None:
    runs = [make_run(f"run {number}") for number in range(3)]
    runs[lacks] = replace(runs[lacks], threshold=None)
    with pytest.raises(
        OsoError, match="method 'fixed_threshold': clips at a threshold, but a run has none"
    ):
        study_training(make_task("fixed_threshold"), runs, arrays)


@pytest.mark.parametrize("ends", range(3))
def test_a_run_that_has_ended_keeps_the_books_of_its_own_steps(
    ends, arrays, make_task, make_run
) -> None:
    """It diverges in its first step; those beside it go on for two more."""
    runs = [make_run(f"run {number}", rho=1e39 if number == ends else 0.1) for number in range(3)]
    training = study_training(make_task("fixed_threshold", steps=9, evaluate_every=9), runs, arrays)
    for _ in range(3):
        training.take_step()
    counts = [training.ledger(number).step_count for number in range(3)]
    assert counts == [1 if number == ends else 3 for number in range(3)]
