"""Clipped losses: whatever they are, nobody moves them by more than is paid for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.given import Given

from oso_dp.errors import OsoError
from oso_dp.privacy.clipped_losses import ClippedLosses
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient, Runs

N, EXPECTED = 40, 20
VALUES = [0.0, 1e-40, 0.3, 1.0, 2.5, 1e30, -1.0, math.inf, -math.inf, math.nan]
BOUNDS = [1e-20, 0.5, 2.0, 1e31]


def gradients(runs: Runs, batch: torch.Tensor) -> Given:
    return Given(torch.ones(*batch.shape, 4))


def released(
    mechanism: Mechanism, query: ClippedLosses, losses: torch.Tensor, step: int = 1
) -> torch.Tensor:
    """[R, J] sums of losses [n, J], after a gradient that costs nothing."""
    runs = slice(0, len(mechanism.run_ids))
    size = len(mechanism.run_ids)
    asked = [ClippedGradient(query.noise_multiplier, torch.ones(size)), query]
    mechanism.release(runs, step, asked, gradients)
    points = torch.zeros(size, query.points, 4)
    answers = mechanism.release_losses(
        runs, step, points, lambda batch, _: losses[batch].transpose(1, 2)
    )
    return answers[ClippedLosses] * mechanism.batch_size


@given(
    points=st.integers(1, 5),
    bounds=st.lists(st.sampled_from(BOUNDS), min_size=2, max_size=2),
    data=st.data(),
)
def test_no_example_moves_them_by_more_than_the_sensitivity(points, bounds, data) -> None:
    """In two runs with bounds of their own; and an example above the bound does move them so."""
    rows = st.lists(st.sampled_from(VALUES), min_size=points, max_size=points)
    losses = torch.tensor(data.draw(st.lists(rows, min_size=2, max_size=5)))
    query = ClippedLosses(1.0, torch.tensor(bounds), points)
    both = losses.T.expand(2, points, -1)
    present = torch.ones(2, len(losses), dtype=torch.bool)
    clipped = query.clipped(both, present, slice(0, 2))
    sensitivity = query.sensitivity(slice(0, 2))
    for example in range(len(losses)):
        moved = clipped[:, :, example].norm(dim=1)
        assert (moved <= sensitivity * (1 + 1e-12)).all()
        without = present.clone()
        without[:, example] = False
        rest = query.clipped(both, without, slice(0, 2))
        others = [other for other in range(len(losses)) if other != example]
        assert torch.equal(rest[:, :, others], clipped[:, :, others])
        assert not rest[:, :, example].any()
    high = torch.full((2, points, 1), 1e35)
    reached = query.clipped(high, torch.ones(2, 1, dtype=torch.bool), slice(0, 2))
    torch.testing.assert_close(reached[:, :, 0].norm(dim=1), sensitivity)


@pytest.mark.parametrize("points", [1, 7, 30, 1000])
def test_an_example_above_the_bound_moves_so_many_sums_by_their_sensitivity(points: int) -> None:
    query = ClippedLosses(1.0, torch.tensor([0.5, 3.0]), points)
    present = torch.ones(2, 1, dtype=torch.bool)
    moved = query.clipped(torch.full((2, points, 1), 9.0), present, slice(0, 2)).norm(dim=1)
    torch.testing.assert_close(moved[:, 0], query.sensitivity(slice(0, 2)))


def test_what_each_loss_counts_for() -> None:
    """Not below zero, not above R; nothing where the first point's is no number."""
    losses = torch.tensor([[0.5, math.nan], [7.0, -3.0], [math.nan, 0.1], [math.inf, 0.1]])
    query = ClippedLosses(1.0, torch.tensor([2.0]), 2)
    clipped = query.clipped(losses.T[None], torch.ones(1, 4, dtype=torch.bool), slice(0, 1))
    assert clipped[0].T.tolist() == [[0.5, 2.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_runs_bound_is_its_own_wherever_it_stands() -> None:
    query = ClippedLosses(1.0, torch.tensor([1.0, 4.0, 2.0]), 3)
    assert query.sensitivity(slice(1, 3)).tolist() == pytest.approx([4 * 3**0.5, 2 * 3**0.5])
    clipped = query.clipped(
        torch.full((2, 3, 1), 9.0), torch.ones(2, 1, dtype=torch.bool), slice(1, 3)
    )
    assert clipped[:, :, 0].tolist() == [[4.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("piece", [None, 7])
def test_they_are_of_the_gradients_batch(piece) -> None:
    """Of the same examples, each once, whatever pads the batch; divided by the expected size."""
    mechanism = Mechanism(["a", "b"], N, EXPECTED, piece=piece)
    losses = torch.rand(N, 2)
    query = ClippedLosses(0.0, torch.full((2,), 5.0), 2)
    taken: list[list[int]] = [[], []]

    def noting(runs: Runs, batch: torch.Tensor) -> Given:
        for run, indices in zip(torch.arange(2)[runs].tolist(), batch.tolist(), strict=True):
            taken[run] += indices
        return gradients(runs, batch)

    asked = [ClippedGradient(0.0, torch.ones(2)), query]
    mechanism.release(slice(0, 2), 1, asked, noting)
    answers = mechanism.release_losses(
        slice(0, 2), 1, torch.zeros(2, 2, 4), lambda batch, _: losses[batch].transpose(1, 2)
    )
    for run in (0, 1):
        indices, present = mechanism.random_numbers.batches([mechanism.run_ids[run]], 1)
        own = indices[0][present[0]]
        assert set(own.tolist()) <= set(taken[run])
        expected = losses[own].double().sum(dim=0).float() / EXPECTED
        torch.testing.assert_close(answers[ClippedLosses][run], expected)


def test_their_noise_is_fresh_and_as_large_as_is_paid_for() -> None:
    """3,000 steps of two runs: nu sqrt(J) R at each point, and no two numbers alike."""
    mechanism = Mechanism(["a", "b"], N, EXPECTED)
    bounds = torch.tensor([0.5, 3.0])
    query = ClippedLosses(2.0, bounds, 3)
    zeros = torch.zeros(N, 3)
    noise = torch.stack([released(mechanism, query, zeros, step) for step in range(1, 3001)])
    expected = 2.0 * 3**0.5 * bounds
    for run in (0, 1):
        deviations = noise[:, run].std(dim=0)
        assert deviations.tolist() == pytest.approx([expected[run].item()] * 3, rel=0.08)
    columns = noise.flatten(1).T
    assert (torch.corrcoef(columns) - torch.eye(6)).abs().max() < 0.1  # 5.5 deviations
    later, earlier = columns[:, 1:].flatten(), columns[:, :-1].flatten()
    assert abs(torch.corrcoef(torch.stack([later, earlier]))[0, 1]) < 0.05


def test_their_noise_is_not_the_gradients() -> None:
    mechanism = Mechanism(["a"], N, EXPECTED)
    gradient, losses = [], []
    for step in range(1, 1501):
        asked = [ClippedGradient(1.0, torch.ones(1)), ClippedLosses(1.0, torch.ones(1), 1)]
        sums = mechanism.release(
            slice(0, 1), step, asked, lambda _, b: Given(torch.zeros(*b.shape, 1))
        )
        gradient.append(sums[ClippedGradient][0, 0])
        answers = mechanism.release_losses(
            slice(0, 1), step, torch.zeros(1, 1, 1), lambda b, _: torch.zeros(1, 1, b.shape[1])
        )
        losses.append(answers[ClippedLosses][0, 0])
    pairs = torch.stack([torch.stack(gradient), torch.stack(losses)])
    assert abs(torch.corrcoef(pairs)[0, 1]) < 0.13


def test_they_are_in_the_ledger_before_anybody_has_them() -> None:
    mechanism = Mechanism(["a"], N, EXPECTED)
    asked = [ClippedGradient(2.0, torch.ones(1)), ClippedLosses(5.0, torch.ones(1), 3)]
    mechanism.release(slice(0, 1), 1, asked, gradients)
    booked = (SumQuery("clipped_gradient", 2.0), SumQuery("clipped_losses", 5.0))
    assert mechanism.ledgers[0].steps == [(booked, 1)]


def test_a_step_whose_losses_cost_too_much_is_refused() -> None:
    mechanism = Mechanism(["a"], N, EXPECTED, noise_multiplier=1.0)
    asked = [ClippedGradient(1.0, torch.ones(1)), ClippedLosses(50.0, torch.ones(1), 3)]
    with pytest.raises(OsoError, match="clipped_losses: their noise multiplier is"):
        mechanism.release(slice(0, 1), 1, asked, gradients)
    assert mechanism.ledgers[0].steps == []


def ask(mechanism: Mechanism, step: int) -> None:
    asked = [ClippedGradient(1.0, torch.ones(2)), ClippedLosses(1.0, torch.ones(2), 3)]
    mechanism.release(slice(0, 2), step, asked, gradients)


def take(mechanism: Mechanism, step: int, runs: slice = slice(0, 2), points: int = 3) -> None:
    size = len(range(2)[runs])
    mechanism.release_losses(
        runs, step, torch.zeros(size, points, 4), lambda b, p: torch.zeros(size, points, b.shape[1])
    )


def test_they_are_handed_out_once_and_as_they_were_paid_for() -> None:
    """Not twice, not at another step, not for other runs or more points, not unasked."""
    mechanism = Mechanism(["a", "b"], N, EXPECTED)
    with pytest.raises(ValueError, match="step 1: its losses were not asked for"):
        take(mechanism, 1)
    ask(mechanism, 1)
    take(mechanism, 1)
    with pytest.raises(ValueError, match="or taken already"):
        take(mechanism, 1)
    ask(mechanism, 2)
    with pytest.raises(ValueError, match="not asked for"):
        take(mechanism, 3)
    ask(mechanism, 4)
    with pytest.raises(ValueError, match="not asked for"):
        take(mechanism, 4, slice(0, 1))
    ask(mechanism, 5)
    with pytest.raises(ValueError, match=r"points .*: 3 of each run are paid"):
        take(mechanism, 5, points=4)
    ask(mechanism, 10)
    with pytest.raises(ValueError, match=r"losses .*: one for each point and example"):
        mechanism.release_losses(
            slice(0, 2), 10, torch.zeros(2, 3, 4), lambda b, p: torch.zeros(2, 4, b.shape[1])
        )
    ask(mechanism, 16)
    mechanism.keep([1, 0])
    with pytest.raises(ValueError, match="not asked for"):
        take(mechanism, 16)
    ask(mechanism, 17)
    steps = mechanism.ledgers[0].step_count
    mechanism.resume(mechanism.ledgers, steps)  # whoever takes up the books starts a step anew
    with pytest.raises(ValueError, match="not asked for"):
        take(mechanism, 17)


@pytest.mark.parametrize("value", [math.inf, 1e38])
def test_an_infinite_bound_does_not_tell_an_empty_batch(value: float) -> None:
    """Infinite noise on infinite losses is no number; where nobody is, it would be infinite."""
    query = ClippedLosses(1.0, torch.tensor([value]), 2)
    losses = torch.tensor([1.0, math.inf]).expand(N, 2)
    for run in range(8):
        assert released(Mechanism([f"r{run}"], N, EXPECTED), query, losses).isfinite().all()


@pytest.mark.parametrize("bound", [0.0, -1.0, 1e-20])
def test_a_bound_that_is_none_is_the_smallest(bound: float) -> None:
    query = ClippedLosses(1.0, torch.tensor([bound]), 3)
    (one,) = query.sensitivity(slice(0, 1)).flatten().tolist()
    assert one == pytest.approx(math.sqrt(3) * 1e-12)
