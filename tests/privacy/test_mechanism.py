"""The mechanism: noise of each sum, sensitivities, late steps."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.helpers import (
    Given,
    always_empty,
    batch_of,
    released,
    seeded_normals,
    sums_of_one,
)
from tests.privacy.test_streams import STEPS
from torch import nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine
from oso_dp.models.losses import cross_entropy
from oso_dp.privacy import philox, system_noise
from oso_dp.privacy.batch_rng import MAX_MICROBATCH, NOISE_BLOCK, BatchRNG, NoiseSpec
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.noisy_mean import NoisyMean
from oso_dp.privacy.queries import (
    ClippedDirection,
    ClippedGradient,
    PlainGradient,
    Runs,
    UnclippedCount,
)
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling, uniform_below


def size_of(mechanism: Mechanism, step: int) -> int:
    """Of the first run's batch."""
    return len(batch_of(mechanism.random_numbers, mechanism.run_ids[0], step))


def threshold(value: float) -> torch.Tensor:
    return torch.tensor([value])


@pytest.mark.parametrize("value", [0.01, 5.0])
def test_mechanism_noise_has_stated_deviation(value: float) -> None:
    """The noise is Gaussian, with a deviation of sensitivity times noise multiplier."""
    mechanism = Mechanism(["run"], records=100, batch_size=10)
    zeros = torch.zeros(100, 40_000)
    queries = [ClippedGradient(2.0, threshold(value)), ClippedDirection(3.0, threshold(value))]
    answers = released(mechanism, 0, 1, queries, lambda batch: Given(zeros[batch]))
    noise = {name: answer * 10 for name, answer in answers.items()}
    assert noise["clipped_gradient"].std().item() == pytest.approx(2.0 * value, rel=0.02)
    assert noise["clipped_direction"].std().item() == pytest.approx(3.0, rel=0.02)
    for answer, scale in zip(noise.values(), (2.0 * value, 3.0), strict=True):
        assert scipy.stats.kstest(answer.double().numpy() / scale, "norm").pvalue > 1e-4
        assert len(answer.unique()) > 39_000


def test_mechanism_count_noise_halves_multiplier() -> None:
    mechanism = always_empty(Mechanism(["run"], records=100, batch_size=10))
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
def test_mechanism_noise_uncorrelated_across_releases(together: bool) -> None:
    mechanism = Mechanism(["a", "b"], records=100, batch_size=10)
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


def test_mechanism_batches_match_poisson_law() -> None:
    """Each example is drawn with probability q, independently, so batch sizes are binomial."""
    mechanism = Mechanism(["run"], records=1000, batch_size=100)
    batches = [batch_of(mechanism.random_numbers, "run", step) for step in range(1, 2001)]
    sizes = torch.tensor([len(batch) for batch in batches], dtype=torch.double)
    assert sizes.mean().item() == pytest.approx(100, abs=1)
    assert sizes.std().item() == pytest.approx(math.sqrt(1000 * 0.1 * 0.9), rel=0.06)
    share = torch.bincount(torch.cat(batches), minlength=1000) / 2000
    assert share.min() > 0.06
    assert share.max() < 0.14


def test_mechanism_empty_batch_noised_and_booked() -> None:
    mechanism = Mechanism(["run"], records=10, batch_size=1)
    step = next(s for s in range(1, 100) if len(batch_of(mechanism.random_numbers, "run", s)) == 0)
    query = [ClippedGradient(2.0, threshold(1.0))]
    answer = released(mechanism, 0, step, query, lambda b: Given(torch.zeros(*b.shape, 5000)))
    assert answer["clipped_gradient"].std().item() == pytest.approx(2.0, rel=0.05)
    assert mechanism.ledgers[0].steps == [((SumQuery("clipped_gradient", 2.0),), 1)]


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e6, 1e25, math.inf, math.nan]),
    value=st.sampled_from([1e-14, 0.1, 10.0]),
)
def test_unnoised_sums_neighbours_differ_within_sensitivity(seed, scale, value) -> None:
    """The bound holds for any example, also for extreme and nonfinite gradients."""
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


def test_mechanism_plain_gradient_released_exactly() -> None:
    mechanism = Mechanism(["run"], records=20, batch_size=10)
    gradients = torch.randn(20, 3)
    batch = batch_of(mechanism.random_numbers, "run", 1)

    class WithoutNorms(Given):
        def norms(self) -> torch.Tensor:
            raise AssertionError("nobody asked, and an example without a norm would be left out")

    answer = released(mechanism, 0, 1, [PlainGradient()], lambda b: WithoutNorms(gradients[b]))
    torch.testing.assert_close(answer["plain_gradient"], gradients[batch].sum(dim=0) / 10)
    assert compute_epsilon(mechanism.ledgers, 1e-5) == math.inf


def test_mechanism_noise_added_before_rounding() -> None:
    """In float32, 1 + noise is a multiple of 2^-24 near zero, which would reveal the 1."""
    norm = math.sqrt(40_000)
    mechanism = Mechanism(["run"], records=1, batch_size=1)
    query = [ClippedGradient(1 / norm, threshold(2 * norm))]  # noise of deviation 2 on sums of 1
    answer = released(mechanism, 0, 1, query, lambda b: Given(torch.ones(*b.shape, 40_000)))
    small = answer["clipped_gradient"].double()
    small = small[small.abs() < 2.0**-8]
    assert len(small) > 20
    assert ((small * 2.0**24) % 1 != 0).double().mean() > 0.9


@pytest.mark.parametrize("value", [math.inf, 1e38])
def test_mechanism_huge_threshold_stays_finite(value: float) -> None:
    for examples, batch_size in ((1000, 1), (3, 3)):  # nobody, everybody
        mechanism = Mechanism(["run"], examples, batch_size)
        step = next(s for s in range(1, 99) if batch_size == 3 or not size_of(mechanism, s))
        query = [ClippedGradient(1.0, threshold(value))]
        answer = released(mechanism, 0, step, query, lambda b: Given(torch.ones(*b.shape, 4)))
        assert answer["clipped_gradient"].isfinite().all()


@pytest.mark.parametrize(
    "multipliers", [(1.0, 1.0001), (1.0, 1.000001), (0.3123456, 0.3123457), (7.654321, 7.654322)]
)
def test_mechanism_noise_differs_by_multiplier(multipliers) -> None:
    """Two answers with the same noise, scaled differently, would reveal the exact sum."""
    noise = []
    for nu in multipliers:
        mechanism = Mechanism(["run"], records=10, batch_size=5)
        query = [ClippedGradient(nu, threshold(1.0))]
        answer = released(mechanism, 0, 1, query, lambda b: Given(torch.zeros(*b.shape, 2000)))
        noise.append(answer["clipped_gradient"] / nu)
    assert torch.corrcoef(torch.stack(noise))[0, 1].abs() < 0.15


def test_mechanism_system_entropy_never_repeats() -> None:
    """The same run, step and query get another batch and other noise each time."""
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


def test_mechanism_deviation_keeps_float64_digits() -> None:
    """A deviation that float32 rounds down would give less noise than was paid for."""
    mechanism = always_empty(Mechanism(["a", "b"], records=100, batch_size=7))
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
        drawn = seeded_normals(["a", "b"], f"noise/{query.name}/2.3", 1, (50,))
        deviation = (nu * threshold).double().numpy() if query is queries[1] else [nu, nu]
        expected = drawn * np.array(deviation)[:, None] / 7
        np.testing.assert_allclose(answers[query.key].numpy(), expected, rtol=1e-15)


class NoNoise(Seeded):
    def fill(self, out, *asked):
        out[:] = 0


@pytest.mark.parametrize("source", [Seeded(), SystemEntropy()])
def test_noisy_mean_noise_matches_std(source) -> None:
    share = NoisyMean(500, 8.0, source)
    values = torch.rand(500, dtype=torch.float64)
    errors = [
        share.release(f"a/{run}", lambda: values) - float(values.mean()) for run in range(3000)
    ]
    std = torch.tensor(errors).std().item()
    assert share.std == 0.5 * 8.0 / 500
    assert std == pytest.approx(share.std, rel=0.07)  # five standard deviations
    fewest = 1500 if isinstance(source, SystemEntropy) else 2990  # rounded to a grid, or float32
    assert len(set(errors)) > fewest
    assert abs(sum(errors) / 3000) < 5 * share.std / math.sqrt(3000)


@pytest.mark.parametrize(("examples", "nu"), [(1, 0.5), (7, 3.25), (500, 8.0), (60_000, 123.456)])
def test_noisy_mean_bitwise_equals_formula(examples: int, nu: float) -> None:
    """A statistical test would not detect noise that is a few percent too small."""
    values = torch.rand(examples, dtype=torch.float64)
    (noise,) = seeded_normals(["a"], f"noise/score/{nu:.7g}", 1, (1,))[0]
    total = (values - 0.5).sum() + float(noise) * nu * 0.5
    found = NoisyMean(examples, nu, Seeded()).release("a", lambda: values)
    assert found == float(total.float()) / examples + 0.5


def test_noisy_mean_failed_release_booked_once() -> None:
    """The error of a failed release may reveal values."""

    def values():
        raise KeyError("mistake")

    share = NoisyMean(50, 2.0, Seeded())
    with pytest.raises(KeyError):
        share.release("a", values)
    assert share.ledger.steps == [((SumQuery("score", 2.0),), 1)]
    with pytest.raises(ValueError, match="scored before"):
        share.release("a", lambda: torch.ones(50))
    assert share.ledger.step_count == 1


def test_noisy_mean_releases_booked_once() -> None:
    share = NoisyMean(50, 2.0, Seeded())
    for run in range(7):
        share.release(f"{run}", lambda: torch.ones(50))
    assert share.ledger.steps == [((SumQuery("score", 2.0),), 7)]
    assert share.ledger.sampling.rate == 1.0
    # Seven Gaussian sums on all examples are one of the root of a seventh of the noise.
    whole = NoisyMean(50, 2.0 / math.sqrt(7), Seeded())
    whole.release("0", lambda: torch.ones(50))
    assert compute_epsilon([share.ledger], 1e-5) == pytest.approx(
        compute_epsilon([whole.ledger], 1e-5)
    )
    with pytest.raises(ValueError, match="scored before"):
        share.release("3", lambda: torch.ones(50))
    assert share.ledger.step_count == 7


@pytest.mark.parametrize("nus", [(2, 3), (2.0, 2.01), (1.234567, 1.234568), (12345.6, 12345.7)])
def test_noisy_mean_noise_differs_by_multiplier(nus) -> None:
    one, other = (
        (NoisyMean(50, nu, Seeded()).release("a", lambda: torch.ones(50)) - 1) / nu for nu in nus
    )
    assert one != pytest.approx(other, rel=1e-3)


@given(st.lists(st.floats(width=32), min_size=1, max_size=9), st.floats(width=32))
def test_noisy_mean_neighbours_differ_within_sensitivity(values, more) -> None:
    """The bound holds for any score, also for infinity, NaN and values outside of [0, 1]."""

    def total(numbers) -> float:
        share = NoisyMean(len(numbers), 1.0, NoNoise())
        return (share.release("a", lambda: torch.tensor(numbers)) - 0.5) * len(numbers)

    assert abs(total([*values, more]) - total(values)) <= 0.5 + 1e-6  # rounded, after the noise


def test_noisy_mean_invalid_arguments_rejected() -> None:
    with pytest.raises(OsoError, match=r"scores: shape \[2\]; must be \[3\]"):
        NoisyMean(3, 1.0, Seeded()).release("a", lambda: torch.ones(2))
    with pytest.raises(OsoError, match="must be > 0"):
        NoisyMean(3, 0.0, Seeded())


def test_noisy_mean_invalid_scores_clamped() -> None:
    given = {math.nan: 0.0, -math.inf: 0.0, math.inf: 1.0, 7.0: 1.0, 0.25: 0.25}
    for value, counts in given.items():
        share = NoisyMean(1, 1.0, NoNoise())
        assert share.release("a", lambda one=value: torch.tensor([one])) == counts


CPU = torch.device("cpu")


SOURCES = [Seeded, SystemEntropy]


class Numbered(Seeded):
    """Instead of noise, each number tells the block that it was asked for as."""

    def fill(self, numbers: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        numbers[:] = block


def test_batch_rng_long_sum_blocks_differ() -> None:
    """The sum has the size of a network of five million parameters on the host."""
    size = 300 * NOISE_BLOCK + 5
    draws = BatchRNG(Numbered(), PoissonSampling(0.5), 10, CPU)
    noise = NoiseSpec("noise/x", torch.ones(1))
    (noised,) = draws.add_noise(["a"], 7, [torch.zeros(1, size)], [noise])
    assert torch.equal(noised[0].long(), torch.arange(size) // NOISE_BLOCK)


def test_batch_rng_many_small_blocks_differ(monkeypatch) -> None:
    """2^17 small blocks stand for the blocks of a network of two billion parameters."""
    size = 8 * 2**17 - 3
    monkeypatch.setattr("oso_dp.privacy.rng_sources.BLOCK", 8)
    draws = BatchRNG(Numbered(), PoissonSampling(0.5), 10, CPU)
    noise = NoiseSpec("noise/x", torch.ones(1))
    (noised,) = draws.add_noise(["a"], 7, [torch.zeros(1, size)], [noise])
    assert torch.equal(noised[0].long(), torch.arange(size) // 8)


def test_philox_pairs_many_counters_differ(monkeypatch) -> None:
    """33 million parameters need counters beyond the exact integers of float32."""
    counters = []

    def noting(c0, c1, *others):
        counters.append(c0)
        return c0, c0

    monkeypatch.setattr(philox, "integers", noting)
    first, _ = philox.pairs(["a"], "noise/x", 7, 2**25 + 7, CPU)
    assert torch.equal(counters[0][0], torch.arange(2**24 + 4))
    assert first.shape == (1, 2**24 + 4)


def released_at(mechanism: Mechanism, step: int, taken: list) -> tuple[float, float]:
    """A gradient's and a direction's noise; notes the batch that both were taken over."""

    def gradients(runs: Runs, batch: torch.Tensor) -> Given:
        taken.append((step, tuple(batch[0].tolist())))
        return Given(torch.zeros(*batch.shape, 1, dtype=torch.float64))

    one = torch.ones(1, dtype=torch.float64)  # of 336 numbers of float32, two may be equal
    asked = [ClippedGradient(1.0, one), ClippedDirection(2.0, one)]
    sums = mechanism.release(slice(0, 1), step, asked, gradients)
    return float(sums[ClippedGradient][0, 0]), float(sums[ClippedDirection][0, 0])


@pytest.mark.parametrize("source", SOURCES)
def test_mechanism_late_steps_differ(source, monkeypatch) -> None:
    # The system's noise before it is rounded: afterwards some numbers are equal.
    monkeypatch.setattr(system_noise, "round_to_grid", lambda numbers, spacing: numbers)
    mechanism = Mechanism(["a"], 200, 100, randomness=source(), microbatch_size=200)
    taken: list = []
    steps = sorted({*STEPS})
    noise = [released_at(mechanism, step, taken) for step in steps]
    assert len({number for pair in noise for number in pair}) == 2 * len(steps)
    assert len({batch for _, batch in taken}) == len(taken) == len(steps)


@pytest.mark.parametrize(("late", "again"), [(4097, 4097), (5000, 4500), (2**20, 4097), (3, 2)])
def test_mechanism_late_step_repeat_rejected(late: int, again: int) -> None:
    mechanism = Mechanism(["a"], 200, 100)
    released_at(mechanism, late, [])
    with pytest.raises(ValueError, match=f"step: {again}; was released before"):
        released_at(mechanism, again, [])
    released_at(mechanism, late + 1, [])


@pytest.mark.parametrize("bits", [24, 33])
def test_uniform_below_large_limit_unbiased(bits: int) -> None:
    drawn = uniform_below(2**bits, 40_000, Seeded().words("a", "sampling", 7))
    low = drawn[:, None] >> np.arange(bits) & 1
    assert np.abs(low.mean(axis=0) - 0.5).max() < 0.02  # 8 deviations


@pytest.mark.parametrize("microbatch_size", [None, 40])
def test_mechanism_prefetched_batches_match_steps(microbatch_size) -> None:
    """Two runs get the same batches with and without prefetching, also after one run has ended."""
    taken: dict[str, list] = {}
    for how in ("not", "for a loader", "on an accelerator"):
        ahead = how == "for a loader"
        mechanism = Mechanism(["a", "b"], 200, 100, 1.0, microbatch_size=microbatch_size)
        mechanism.random_numbers.is_on_accelerator = how == "on an accelerator"
        asked, batches = [], taken.setdefault(how, [])

        def gradients(runs, indices, batches=batches) -> Given:
            batches.append(indices.tolist())
            return Given(torch.zeros(*indices.shape, 3))

        for number, step in enumerate((1, 2, 3, 4, 9)):  # the last comes unexpected
            if step == 4:
                mechanism.keep([1])
            runs, before = slice(0, len(mechanism.run_ids)), len(batches)
            query = [ClippedGradient(1.0, torch.ones(len(mechanism.run_ids)))]
            prefetch = asked.append if ahead and step < 9 else None
            mechanism.release(runs, step, query, gradients, prefetch)
            if ahead and step in (2, 3):  # afterwards one run's batch is another one
                assert asked[number - 1].tolist() == batches[before]
        assert len(asked) == (4 if ahead else 0)
    assert taken["not"] == taken["for a loader"] == taken["on an accelerator"]


@pytest.mark.parametrize("is_on_accelerator", [False, True])
def test_mechanism_prefetched_batch_used_once(is_on_accelerator) -> None:
    """Two steps on one prefetched batch would cost more than the ledger says.

    All 200 records fit into one microbatch.
    """
    mechanism = Mechanism(["a"], 200, 190, 1.0, randomness=SystemEntropy())
    mechanism.random_numbers.is_on_accelerator = is_on_accelerator
    taken, asked = [], []

    def gradients(runs, indices) -> Given:
        taken.append(tuple(indices[0].tolist()))
        return Given(torch.zeros(*indices.shape, 3))

    for step in range(1, 8):
        query = [ClippedGradient(1.0, torch.ones(1))]
        prefetch = None if is_on_accelerator else asked.append
        mechanism.release(slice(0, 1), step, query, gradients, prefetch)
    assert len(set(taken)) == 7
    if is_on_accelerator:
        drawn = mechanism._ahead[2][0].indices[0].tolist()
        assert tuple(drawn) not in taken
        return
    assert [tuple(one[0].tolist()) for one in asked[:-1]] == taken[1:]


@pytest.mark.parametrize(
    ("records", "batch_size", "microbatch_size", "runs"),
    [
        (2000, 20, None, 1),
        (2000, 100, 24, 3),
        (600, 600, None, 1),
        (5000, 2500, None, 2),
        (9, 1, 4, 1),
    ],
)
def test_mechanism_protected_batches_share_width(
    records, batch_size, microbatch_size, runs
) -> None:
    """With several widths, the rounding of a product would reveal the size of a batch."""
    ids = [f"run {run}" for run in range(runs)]
    mechanism = Mechanism(
        ids, records, batch_size, 0.0, SystemEntropy(), microbatch_size=microbatch_size
    )
    widths, sizes, drawn = set(), [], []

    def gradients(some, indices) -> Given:
        if indices.shape[1]:  # of an empty batch there is nothing to compute
            widths.add(indices.shape[1])
        return Given(torch.ones(*indices.shape, 1))

    rng = mechanism.random_numbers
    rng._draw = lambda *asked, draw=rng._draw: drawn.append(draw(*asked)) or drawn[-1]
    for step in range(1, 41):
        query = ClippedGradient(0.0, torch.full((runs,), 2.0))
        sums = mechanism.release(slice(0, runs), step, [query], gradients)[ClippedGradient]
        sizes += [*(sums[:, 0] * batch_size).round().int().tolist()]
    assert sizes == [len(batch) for step in drawn for batch, _ in step]
    assert len(widths) == 1
    (width,) = widths
    assert width <= (microbatch_size or MAX_MICROBATCH)
    padded = sum(-(-size // width) * width for size in sizes)
    assert padded <= 1.25 * sum(sizes) + 32 * len(sizes)


@pytest.mark.parametrize("size", [7, 8, 63, 64, 128, 376])
def test_mechanism_extra_record_keeps_other_gradients(size: int, monkeypatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 32), nn.ReLU(), nn.Linear(32, 3))
    engine = GradientEngine(model, cross_entropy)
    flat = 0.3 * torch.randn(1, engine.size)
    inputs, targets = torch.randn(size + 1, 300), torch.randint(3, (size + 1,))
    norms: list[dict[int, float]] = []
    for there in (np.arange(size), np.arange(size + 1)):
        mechanism = Mechanism(["a"], 1000, size, 1.0, SystemEntropy())
        monkeypatch.setattr(PoissonSampling, "draw", lambda self, n, words, there=there: there)
        found: dict[int, float] = {}

        def gradients(runs, rows, found=found):
            made = engine(flat, inputs[rows], targets[rows])
            found.update(zip(rows[0].tolist(), made.norms()[0].tolist(), strict=True))
            return made

        mechanism.release(slice(0, 1), 1, [ClippedGradient(1.0, torch.ones(1))], gradients)
        norms.append(found)
    fewer, more = norms
    assert all(fewer[row] == more[row] for row in range(1, size))


def test_mechanism_many_microbatches_sum_exactly() -> None:
    """A float32 total, rounded at each addition, would stay at 2^24."""
    mechanism = Mechanism(["a"], 1001, 1001, microbatch_size=1)
    values = torch.ones(1001, 1)
    values[0] = 2.0**24

    def gradients(runs, rows) -> Given:
        return Given(values[rows] * (rows < 1001)[..., None])

    (total,) = mechanism.release(slice(0, 1), 1, [PlainGradient()], gradients).values()
    assert (total * 1001).item() == pytest.approx(2.0**24 + 1000, abs=2)
    assert total.dtype == torch.float32
