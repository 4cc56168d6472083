"""On a CPU a run's answers are the same to the bit, whichever runs are asked for beside it."""

import pytest
import torch
from torch import nn

from oso_dp.gradients import BatchGradients, GradientEngine
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy.batch_rng import BLOCK
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, Runs, UnclippedCount
from oso_dp.privacy.unnoised_sums import unnoised_sums

RUNS = [f"run {i}" for i in range(6)]
EXAMPLES, EXPECTED, STEPS, FEATURES = 2000, 8 * BLOCK, range(1, 13), 700
# Of the norms, so that about these shares of a batch are clipped: near the share at which the layer
# leaves out who has no weight in a sum, the padded width could decide.
SHARES = torch.tensor([0.1, 0.5, 0.72, 0.76, 0.8, 1.0])


@pytest.fixture(scope="module")
def problem():
    """A network with a layer of more weights than are summed run by run, and one of fewer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 3))
    code = GradientEngine(model, cross_entropy)
    flats = 0.1 * torch.randn(len(RUNS), code.size)
    inputs, targets = torch.rand(EXAMPLES, FEATURES), torch.randint(3, (EXAMPLES,))
    norms = code(flats, inputs.expand(6, -1, -1), targets.expand(6, -1)).norms()
    thresholds = torch.stack(
        [one.quantile(share) for one, share in zip(norms, SHARES, strict=True)]
    )
    return code, flats, inputs, targets, thresholds


def asked(thresholds: torch.Tensor, direction: bool):
    """The direction is made of the same parts as the clipped gradient: two sums of a layer."""
    return [
        ClippedGradient(1.0, thresholds),
        *([ClippedDirection(2.0, thresholds)] if direction else []),
        UnclippedCount(3.0, thresholds),
    ]


def answers_of(mechanism: Mechanism, runs: slice, step: int, problem, direction: bool):
    code, flats, inputs, targets, thresholds = problem

    def gradients(some: Runs, rows: torch.Tensor) -> BatchGradients:
        return code(flats[some], inputs[rows], targets[rows])

    return mechanism.release(runs, step, asked(thresholds, direction), gradients)


@pytest.mark.parametrize(
    ("direction", "microbatch_size", "first"),
    [(True, None, 0), (True, None, 2), (True, 200, 0), (False, None, 0), (False, 200, 1)],
)
def test_a_runs_answers_do_not_depend_on_its_company(
    problem, direction, microbatch_size, first
) -> None:
    """Over steps in which the batches need different widths: the last bits of products show it.

    first: of the runs that are asked for together, as where they go in groups.
    """
    together, alone = (
        Mechanism(RUNS, EXAMPLES, EXPECTED, microbatch_size=microbatch_size) for _ in "ab"
    )
    widths = []
    for step in STEPS:
        batches = together.random_numbers.batches_by_width(RUNS[first:], step)
        widths.append(len(batches))
        several = answers_of(together, slice(first, len(RUNS)), step, problem, direction)
        for run in range(first, len(RUNS)):
            own = answers_of(alone, slice(run, run + 1), step, problem, direction)
            for key, answer in own.items():
                assert torch.equal(several[key][run - first], answer[0])
    assert max(widths) > 1  # or nothing was tested


def test_batches_by_width_are_the_batches(problem) -> None:
    """Also where the longest is as wide as its padding, or by one too long for it."""
    numbers = Mechanism(RUNS, EXAMPLES, EXPECTED).random_numbers
    drawn: set[int] = set()
    for step in range(1, 301):
        indices, present = numbers.batches(RUNS, step)
        parts = numbers.batches_by_width(RUNS, step)
        assert sorted(place for part in parts for place in part.members) == list(range(len(RUNS)))
        for part in parts:
            for place, row, own in zip(part.members, part.indices, part.present, strict=True):
                drawn.add(len(row[own]) % BLOCK)
                assert torch.equal(row[own], indices[place][present[place]])
                assert -(-len(row[own]) // BLOCK) * BLOCK == len(row)
    assert {0, 1, BLOCK - 1} <= drawn


def test_a_layers_sums_are_its_own_runs_where_examples_are_in_two_sums(problem) -> None:
    """One run whose examples are in both sums beside others whose are not."""
    code, flats, inputs, targets, _ = problem
    rows = torch.arange(EXAMPLES).expand(len(RUNS), -1)
    weights = torch.zeros(len(RUNS), 2, EXAMPLES)
    weights[:, 0, ::3], weights[:, 1, 1::3] = 0.3, 0.7
    weights[2] = 0.5
    several = code(flats, inputs[rows], targets[rows]).weighted_sums(weights)
    for run in range(len(RUNS)):
        one = slice(run, run + 1)
        own = code(flats[one], inputs[rows[one]], targets[rows[one]]).weighted_sums(weights[one])
        assert torch.equal(several[run], own[0])


def test_many_runs_are_summed_as_listed(problem) -> None:
    """`exact_sums` of a list of runs is that of each of them, in its order."""
    code, flats, inputs, targets, thresholds = problem
    rows = torch.arange(2 * BLOCK).view(2, BLOCK)
    everybody = torch.ones(2, BLOCK, dtype=torch.bool)
    query = ClippedGradient(1.0, thresholds)
    some = [4, 1]
    (sums,) = unnoised_sums(
        [query], some, code(flats[some], inputs[rows], targets[rows]), everybody
    )
    for place, run in enumerate(some):
        mine = code(flats[run, None], inputs[rows[place, None]], targets[rows[place, None]])
        (own,) = unnoised_sums([query], slice(run, run + 1), mine, everybody[:1])
        assert torch.equal(sums[place], own[0])
