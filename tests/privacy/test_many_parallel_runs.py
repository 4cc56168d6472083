"""What holds for one run holds for several at once, however far apart they are."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.helpers import Given, batch_of, released

from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import (
    QUERIES,
    AutomaticGradient,
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    Runs,
    UnclippedCount,
)

THRESHOLDED = [kind for kind in QUERIES if kind is not PlainGradient]
NORMS = [0.0, 1e-40, 1e-12, 0.3, 1.0, 7.0, 1e17, 1e35, math.inf, math.nan]
THRESHOLDS = [0.0, 1e-40, 1e-13, 1e-12, 0.5, 1.0, 1e6, 1e30, 1e38, math.inf]
batches = st.integers(1, 5).flatmap(
    lambda runs: st.tuples(
        st.lists(st.sampled_from(THRESHOLDS), min_size=runs, max_size=runs),
        st.integers(0, 4).flatmap(
            lambda size: st.lists(
                st.lists(st.sampled_from(NORMS), min_size=size, max_size=size),
                min_size=runs,
                max_size=runs,
            )
        ),
    )
)


@pytest.mark.parametrize("kind", THRESHOLDED)
@given(batches)
def test_weights_and_sensitivities_of_runs_together_are_each_ones_own(kind, batch) -> None:
    """Thresholds and norms of any size, not finite, or none: nothing changes in company."""
    thresholds, norms = torch.tensor(batch[0]), torch.tensor(batch[1])
    query, runs = kind(1.0, thresholds), slice(0, len(thresholds))
    weights = query.weights(norms, runs)
    together = torch.as_tensor(query.sensitivity(runs)).expand(len(thresholds))
    assert weights.isfinite().all()
    assert not weights[~norms.isfinite()].any()
    for run in range(len(thresholds)):
        alone = slice(run, run + 1)
        assert torch.equal(weights[alone], query.weights(norms[alone], alone))
        assert float(together[run]) == float(query.sensitivity(alone))
        assert math.isfinite(together[run])


# A run's threshold, and the length of its examples' gradients.
FAR = [(0.0, 1.0), (1e-13, 1e-3), (0.5, 3.0), (1e6, 1.0), (math.inf, 1.0), (2.0, math.nan)]


def queries(thresholds: torch.Tensor) -> list:
    return [
        ClippedGradient(0.7, thresholds),
        AutomaticGradient(0.9, thresholds),
        ClippedDirection(0.8, thresholds),
        UnclippedCount(0.6, thresholds),
    ]


class Uneven(Given):
    """Some examples are not finite: of those the gradient code keeps nothing but the norm."""

    def norms(self) -> torch.Tensor:
        return self.gradients.norm(dim=-1).nan_to_num(nan=math.inf)

    def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
        return weights @ self.gradients.nan_to_num(nan=0.0)


@pytest.mark.parametrize("batch_size", [1, 30])  # of 200 examples: some batches are empty
@pytest.mark.parametrize("microbatch_size", [None, 4, 33])  # batches are padded to 64
def test_answers_of_runs_together_are_each_ones_own(batch_size, microbatch_size) -> None:
    """Also where batches go through the model in pieces, whose last is shorter."""
    steps = (1, 2, 3)
    thresholds = torch.tensor([threshold for threshold, _ in FAR])
    lengths = torch.tensor([length for _, length in FAR])
    names = [f"run {i}" for i in range(len(FAR))]
    directions = torch.nn.functional.normalize(torch.randn(200, 8), dim=1)
    directions[1::7] = math.nan  # not the first, whose index pads the shorter batches
    together, alone = (
        Mechanism(names, 200, batch_size, microbatch_size=p) for p in (microbatch_size, None)
    )
    sizes = set()
    for step in steps:

        def all_of(runs: Runs, batches: torch.Tensor) -> Uneven:
            return Uneven(lengths[runs, None, None] * directions[batches])

        several = together.release(slice(0, len(FAR)), step, queries(thresholds), all_of)
        for run in range(len(FAR)):

            def one_of(batch: torch.Tensor, run=run) -> Uneven:
                return Uneven(lengths[run] * directions[batch])

            sizes.add(len(batch_of(alone.random_numbers, names[run], step)))
            one = released(alone, run, step, queries(thresholds), one_of)
            for query in queries(thresholds):
                answer = one[query.name]
                assert answer.isfinite().all()
                torch.testing.assert_close(
                    several[query.key][run],
                    answer,
                    rtol=1e-4,
                    atol=1e-5 * float(answer.abs().max()),
                )
    assert (0 in sizes) == (batch_size == 1)
    assert [ledger.step_count for ledger in together.ledgers] == [len(steps)] * len(FAR)


@pytest.mark.parametrize("batch_size", [1, 500])
def test_each_run_of_many_has_the_noise_of_its_own_threshold(batch_size: int) -> None:
    """Of none of them the company's, also where batches are empty; nothing else is in the sum."""
    thresholds = torch.tensor([0.0, 1e-6, 0.5, 3.0, 1e6, math.inf])
    runs = slice(0, len(thresholds))
    mechanism = Mechanism([f"run {i}" for i in range(len(thresholds))], 1000, batch_size)
    asked = queries(thresholds)
    answers = mechanism.release(
        runs, 1, asked, lambda _, batch: Given(torch.zeros(*batch.shape, 20_000))
    )
    for query in asked[:-1]:
        noise = answers[query.key] * batch_size
        for run in range(len(thresholds)):
            deviation = query.noise_multiplier * query.sensitivity(slice(run, run + 1))
            assert (noise[run] / deviation).std().item() == pytest.approx(1.0, rel=0.03)
            assert (noise[run] / deviation).mean().item() == pytest.approx(0.0, abs=0.04)


def test_runs_together_are_divided_by_the_expected_size() -> None:
    """With gradients of one and next to no noise, a mean is realised over expected size."""
    names = [f"run {i}" for i in range(6)]
    mechanism = Mechanism(names, 300, 30)
    query, count = ClippedGradient(1e-7, torch.ones(6)), UnclippedCount(1e-7, torch.ones(6))
    for step in range(1, 30):
        sizes = [len(batch_of(mechanism.random_numbers, name, step)) for name in names]
        answers = mechanism.release(
            slice(0, 6), step, [query, count], lambda _, b: Given(torch.ones(*b.shape, 1))
        )
        assert (answers[query.key][:, 0] * 30).tolist() == pytest.approx(sizes, abs=1e-4)
        # What pads the shorter batches casts no vote.
        assert (answers[count.key] * 30).tolist() == pytest.approx(
            [size / 2 for size in sizes], abs=1e-4
        )
