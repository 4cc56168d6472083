"""The mechanism: its noise and its sampling; and that neighbours stay hidden."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import Given, always_empty, batch_of, released, sums_of_one

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, PlainGradient, UnclippedCount
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy


def size_of(mechanism: Mechanism, step: int) -> int:
    """Of the first run's batch."""
    return len(batch_of(mechanism.random_numbers, mechanism.run_ids[0], step))


def threshold(value: float) -> torch.Tensor:
    return torch.tensor([value])


@pytest.mark.parametrize("value", [0.01, 5.0])
def test_noise_has_the_stated_deviation(value: float) -> None:
    """Both vectors' noise is sensitivity x multiplier; a fault in either factor shows."""
    mechanism = Mechanism(["run"], examples=100, batch_size=10)
    zeros = torch.zeros(100, 40_000)
    queries = [ClippedGradient(2.0, threshold(value)), ClippedDirection(3.0, threshold(value))]
    answers = released(mechanism, 0, 1, queries, lambda batch: Given(zeros[batch]))
    noise = {name: answer * 10 for name, answer in answers.items()}
    assert noise["clipped_gradient"].std().item() == pytest.approx(2.0 * value, rel=0.02)
    assert noise["clipped_direction"].std().item() == pytest.approx(3.0, rel=0.02)
    assert noise["clipped_gradient"].mean().item() == pytest.approx(0.0, abs=0.05 * value)


def test_the_counts_noise_is_half_its_multiplier() -> None:
    mechanism = always_empty(Mechanism(["run"], examples=100, batch_size=10))
    zeros = torch.zeros(1, 0, 1)
    query = UnclippedCount(8.0, threshold(1.0))
    values = torch.stack(
        [
            released(mechanism, 0, step, [query], lambda _: Given(zeros))["unclipped_count"]
            for step in range(1, 3001)
        ]
    )
    assert (values * 10).std().item() == pytest.approx(8.0 * 0.5, rel=0.06)


@pytest.mark.parametrize("together", [False, True])
def test_noise_is_fresh_for_each_query_step_and_run(together: bool) -> None:
    mechanism = Mechanism(["a", "b"], examples=100, batch_size=10)
    zeros = torch.zeros(100, 1000)
    queries = [ClippedGradient(1.0, torch.ones(2)), ClippedDirection(1.0, torch.ones(2))]
    answers = []
    for step in (1, 2):
        if together:
            both = mechanism.release(slice(0, 2), step, queries, lambda _, b: Given(zeros[b]))
            answers += [vector for vectors in both.values() for vector in vectors]
            continue
        for run in (0, 1):
            one = released(mechanism, run, step, queries, lambda batch: Given(zeros[batch]))
            answers += one.values()
    vectors = torch.stack(answers)
    assert len(vectors) == 8
    correlation = torch.corrcoef(vectors) - torch.eye(8)
    assert correlation.abs().max() < 0.15  # 5 deviations of 1000 independent pairs


def test_batches_are_poisson() -> None:
    """Each example with probability q, independently: sizes vary as a binomial's do."""
    mechanism = Mechanism(["run"], examples=1000, batch_size=100)
    batches = [batch_of(mechanism.random_numbers, "run", step) for step in range(1, 2001)]
    sizes = torch.tensor([len(batch) for batch in batches], dtype=torch.double)
    assert sizes.mean().item() == pytest.approx(100, abs=1)
    assert sizes.std().item() == pytest.approx(math.sqrt(1000 * 0.1 * 0.9), rel=0.06)
    share = torch.bincount(torch.cat(batches), minlength=1000) / 2000
    assert share.min() > 0.06
    assert share.max() < 0.14


def test_runs_draw_their_own_batches() -> None:
    """One batch shared by the runs of a grid would break the composition that its budget is for."""
    mechanism = Mechanism(["a", "b"], examples=10_000, batch_size=1000)
    first, second = (set(batch_of(mechanism.random_numbers, run, 1).tolist()) for run in "ab")
    assert len(first & second) == pytest.approx(10_000 * 0.1 * 0.1, abs=50)  # 5 deviations


def test_an_empty_batch_releases_pure_noise_and_is_paid_for() -> None:
    mechanism = Mechanism(["run"], examples=10, batch_size=1)
    step = next(s for s in range(1, 100) if len(batch_of(mechanism.random_numbers, "run", s)) == 0)
    query = [ClippedGradient(2.0, threshold(1.0))]
    answer = released(mechanism, 0, step, query, lambda b: Given(torch.zeros(*b.shape, 5000)))
    assert answer["clipped_gradient"].std().item() == pytest.approx(2.0, rel=0.05)
    assert mechanism.ledgers[0].steps == [((SumQuery("clipped_gradient", 2.0),), 1)]


def test_the_divisor_is_the_expected_batch_size() -> None:
    """The realised size would leak it: with all-ones gradients the mean would always be one."""
    mechanism = Mechanism(["run"], examples=100, batch_size=50)
    ones = torch.ones(100, 1)
    query = [ClippedGradient(1e-9, threshold(1.0))]
    for step in range(1, 20):
        size = len(batch_of(mechanism.random_numbers, "run", step))
        answer = released(mechanism, 0, step, query, lambda batch: Given(ones[batch]))
        assert answer["clipped_gradient"].item() == pytest.approx(size / 50, abs=1e-5)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e6, 1e25, math.inf, math.nan]),
    value=st.sampled_from([1e-14, 0.1, 10.0]),
)
def test_neighbouring_data_sets_differ_by_at_most_the_sensitivity(seed, scale, value) -> None:
    """The exact sums of a batch with and without one example, whatever that example is."""
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(6, 30, generator=generator)
    gradients[0] *= scale
    finite = gradients.nan_to_num(0.0, 0.0, 0.0)  # as the gradient code leaves bad examples

    class Code(Given):
        def norms(self) -> torch.Tensor:
            return gradients[-self.gradients.shape[1] :].norm(dim=1)[None]

    queries = [
        ClippedGradient(1.0, threshold(value)),
        ClippedDirection(1.0, threshold(value)),
        UnclippedCount(1.0, threshold(value)),
    ]
    if not gradients.norm(dim=1).isfinite()[0]:
        finite[0] = 0.0
    with_it, without = (sums_of_one(queries, Code(part[None])) for part in (finite, finite[1:]))
    for query, a, b in zip(queries, with_it, without, strict=True):
        bound = float(query.sensitivity(slice(0, 1)))
        # Rounding of the sum itself is not what is tested here.
        slack = 1e-5 * max(bound, 1e-3 * float(a.abs().max()))
        assert torch.linalg.vector_norm(a - b) <= bound + slack


def test_the_plain_gradient_is_exact_and_booked_as_not_private() -> None:
    mechanism = Mechanism(["run"], examples=20, batch_size=10)
    gradients = torch.randn(20, 3)
    batch = batch_of(mechanism.random_numbers, "run", 1)

    class WithoutNorms(Given):
        def norms(self) -> torch.Tensor:
            raise AssertionError("nobody asked, and an example without a norm would be left out")

    answer = released(mechanism, 0, 1, [PlainGradient()], lambda b: WithoutNorms(gradients[b]))
    torch.testing.assert_close(answer["plain_gradient"], gradients[batch].sum(dim=0) / 10)
    assert compute_epsilon(mechanism.ledgers, 1e-5) == math.inf


def test_noise_is_added_before_the_sum_is_rounded() -> None:
    """In float32, 1 + noise is a multiple of 2^-24 near zero, noise alone is not: a tell-tale."""
    norm = math.sqrt(40_000)
    mechanism = Mechanism(["run"], examples=1, batch_size=1)
    query = [ClippedGradient(1 / norm, threshold(2 * norm))]  # noise of deviation 2 on sums of 1
    answer = released(mechanism, 0, 1, query, lambda b: Given(torch.ones(*b.shape, 40_000)))
    small = answer["clipped_gradient"].double()
    small = small[small.abs() < 2.0**-8]
    assert len(small) > 20
    assert ((small * 2.0**24) % 1 != 0).double().mean() > 0.9


@pytest.mark.parametrize("value", [math.inf, 1e38])
def test_an_infinite_threshold_does_not_tell_an_empty_batch(value: float) -> None:
    for examples, batch_size in ((1000, 1), (3, 3)):  # nobody, everybody
        mechanism = Mechanism(["run"], examples, batch_size)
        step = next(s for s in range(1, 99) if batch_size == 3 or not size_of(mechanism, s))
        query = [ClippedGradient(1.0, threshold(value))]
        answer = released(mechanism, 0, step, query, lambda b: Given(torch.ones(*b.shape, 4)))
        assert answer["clipped_gradient"].isfinite().all()


@pytest.mark.parametrize("plain", [False, True])
def test_runs_together_are_answered_as_each_alone(plain: bool) -> None:
    """With its own batch, threshold and noise; what pads a short batch counts for nothing."""
    gradients = 3 * torch.randn(100, 50)
    thresholds = torch.tensor([1.0, 5.0, 20.0])
    queries = [
        ClippedGradient(0.01, thresholds),
        ClippedDirection(0.02, thresholds),
        UnclippedCount(0.03, thresholds),
    ]
    if plain:
        queries = [PlainGradient()]
    together, alone = (Mechanism(["a", "b", "c"], 100, 10) for _ in range(2))
    several = together.release(slice(1, 3), 1, queries, lambda _, b: Given(gradients[b]))
    assert together.random_numbers.batches(["b", "c"], 1)[1].logical_not().any()  # one is shorter
    for place, run in enumerate((1, 2)):
        one = released(alone, run, 1, queries, lambda b: Given(gradients[b]))
        for query in queries:
            torch.testing.assert_close(
                several[query.key][place], one[query.name], rtol=1e-4, atol=1e-5
            )
    assert [ledger.step_count for ledger in together.ledgers] == [0, 1, 1]
    with pytest.raises(ValueError, match="released before"):
        together.release(slice(0, 2), 1, queries, lambda _, b: Given(gradients[b]))
    assert together.ledgers[0].step_count == 0


@pytest.mark.parametrize(
    "multipliers", [(1.0, 1.0001), (1.0, 1.000001), (0.3123456, 0.3123457), (7.654321, 7.654322)]
)
def test_noise_differs_where_its_multiplier_does(multipliers) -> None:
    """Else two answers of one run, priced differently, would give the exact sum away."""
    noise = []
    for nu in multipliers:
        mechanism = Mechanism(["run"], examples=10, batch_size=5)
        query = [ClippedGradient(nu, threshold(1.0))]
        answer = released(mechanism, 0, 1, query, lambda b: Given(torch.zeros(*b.shape, 2000)))
        noise.append(answer["clipped_gradient"] / nu)
    assert torch.corrcoef(torch.stack(noise))[0, 1].abs() < 0.15


def test_noise_is_gaussian() -> None:
    """Its deviation alone would pass for uniform or rounded noise, too."""
    mechanism = Mechanism(["run"], examples=10, batch_size=1)
    query = [ClippedGradient(1.0, threshold(1.0))]
    answer = released(mechanism, 0, 1, query, lambda b: Given(torch.zeros(*b.shape, 50_000)))
    noise = answer["clipped_gradient"].double().numpy()
    assert scipy.stats.kstest(noise, "norm").pvalue > 1e-4
    assert len(np.unique(noise)) > 49_000


def test_with_the_systems_entropy_nothing_repeats() -> None:
    """The same run, step and query twice: another batch and another noise each time."""
    answers, batches = [], []
    for _ in range(2):
        mechanism = Mechanism(["run"], 1000, 500, randomness=SystemEntropy())
        query = [ClippedGradient(2.0, threshold(3.0))]

        def gradients(batch: torch.Tensor) -> Given:
            batches.append(tuple(batch[0].tolist()))
            return Given(torch.zeros(*batch.shape, 20_000))

        answers.append(released(mechanism, 0, 1, query, gradients)["clipped_gradient"] * 500)
    assert batches[0] != batches[1]
    assert torch.corrcoef(torch.stack(answers))[0, 1].abs() < 0.05
    assert answers[0].std().item() == pytest.approx(6.0, rel=0.03)


def test_the_deviation_of_noise_has_all_its_digits() -> None:
    """Of a number that float32 would round down: the noise would be less than was paid for."""
    mechanism = always_empty(Mechanism(["a", "b"], examples=100, batch_size=7))
    nu, threshold = 2.3, torch.tensor([0.3, 5.0])
    assert float(torch.tensor(nu)) < nu
    queries = [ClippedDirection(nu, threshold), ClippedGradient(nu, threshold)]

    class Nobody:
        def norms(self) -> torch.Tensor:
            return torch.zeros(2, 0, dtype=torch.float64)

        def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
            return torch.zeros(2, 2, 50, dtype=torch.float64)

    answers = mechanism.release(slice(0, 2), 1, queries, lambda *_: Nobody())
    for query in queries:
        drawn = Seeded().normals(["a", "b"], f"noise/{query.name}/2.3", 1, (50,))
        deviation = (nu * threshold).double().numpy() if query is queries[1] else [nu, nu]
        expected = drawn * np.array(deviation)[:, None] / 7
        np.testing.assert_allclose(answers[query.key].numpy(), expected, rtol=1e-15)
