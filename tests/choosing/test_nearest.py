"""`oso recommend`: between two measured budgets, and for the budget that was asked for."""

from dataclasses import replace

import pytest
from tests.choosing.test_recommend import ONE, SEARCH
from typer.testing import CliRunner

from oso_dp.choosing.recommend import recommend
from oso_dp.cli.commands import app


@pytest.mark.parametrize("ends", [(3.0, 12.0), (1.0, 4.0), (0.5, 2.0)])
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_budgets_that_are_as_near_the_smaller_counts(ends, turned: bool) -> None:
    """In whatever order they stand there."""
    lines = [replace(one, epsilon=epsilon) for epsilon in ends for one in (SEARCH, ONE)]
    lines = lines[:: -1 if turned else 1]
    best = recommend(lines, 60_000, 20_000, (ends[0] * ends[1]) ** 0.5)
    assert {one.epsilon for one in best.rests_on} == {min(ends)}


@pytest.mark.parametrize("epsilon", [4, 6])
def test_the_noise_is_said_to_be_for_the_budget_that_was_asked_for(epsilon, monkeypatch) -> None:
    """Not for the one that was measured."""
    lines = tuple(replace(one, epsilon=at) for at in (3.0, 9.0) for one in (SEARCH, ONE))
    monkeypatch.setattr("oso_dp.choosing.known.measured", lambda: lines)
    size = ["--examples", "60000", "--batch-size", "60000", "--epochs", "3"]
    asked = ["recommend", *size, "--epsilon", str(epsilon), "--model-size", "20000"]
    said = CliRunner().invoke(app, asked).output
    assert f"runs of 3 steps, epsilon {epsilon} at delta 1e-05" in said
