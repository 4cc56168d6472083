"""Poisson batches: each example takes part by itself, at the rate that the ledger has."""

import math
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import ClassVar

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from dp_accounting import NeighboringRelation, UnsupportedEventError
from tests.privacy.helpers import batch_of, normals_of, seeded_normals
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

from oso_dp.accounting.accountants import compute_epsilon_of_event
from oso_dp.errors import OsoError
from oso_dp.privacy import philox
from oso_dp.privacy.batch_rng import NOISE_BLOCK, BatchRNG, NoiseSpec, padded_length
from oso_dp.privacy.ledger import Ledger, SumQuery, composed_event
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.privacy.rng_sources import RandomSource, Seeded, SystemEntropy
from oso_dp.privacy.sampling import (
    PoissonSampling,
    count_steps,
    draw_binomial,
    draw_subset,
    uniform_below,
)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.nan, math.inf])
def test_poisson_sampling_invalid_rate_rejected(rate: float) -> None:
    with pytest.raises(OsoError, match=r"sampling_rate: .*; must be > 0 and <= 1"):
        PoissonSampling(rate)


# MNIST's and AG News' studies; a quarter of an epoch; one example in a step; a batch of them all.
@pytest.mark.parametrize(
    ("epochs", "examples", "batch_size", "steps"),
    [
        (10, 60_000, 512, 1172),
        (5, 120_000, 512, 1172),
        (1, 60_000, 512, 118),
        (0.25, 1000, 64, 4),
        (0.01, 1000, 64, 1),
        (3, 100, 30, 10),
        (2, 7, 1, 14),
        (1.5, 400, 400, 2),
    ],
)
def test_count_steps_partial_step_rounded_up(
    epochs: float, examples: int, batch_size: int, steps: int
) -> None:
    assert count_steps(epochs, examples, batch_size) == steps


@pytest.mark.parametrize(
    ("batch_size", "examples", "rate"),
    [(512, 60_000, 0.0085333333333333333), (30, 100, 0.3), (7, 7, 1.0), (1, 3, 1 / 3)],
)
def test_poisson_sampling_rate_equals_batch_share(
    batch_size: int, examples: int, rate: float
) -> None:
    assert PoissonSampling.of(batch_size, examples).rate == rate


def test_poisson_sampling_event_wraps_sums() -> None:
    event = PoissonSampling(0.3).event(dp_accounting.GaussianDpEvent(2.0))
    assert event == dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.GaussianDpEvent(2.0))


def test_poisson_sampling_full_rate_not_amplified() -> None:
    """q = 1 must cost what the Gaussian mechanism alone costs."""
    step = (SumQuery("g", 2.0),)
    event = Ledger(PoissonSampling(1.0), [(step, 10)]).event()
    plain = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 10)
    sampling = PoissonSampling(1.0)
    found = compute_epsilon_of_event(sampling, event, 1e-5, "rdp")
    assert found == pytest.approx(compute_epsilon_of_event(sampling, plain, 1e-5, "rdp"), rel=1e-9)


@pytest.mark.parametrize(
    ("scheme", "relation"),
    [
        ("poisson", "replace_one"),
        ("fixed_size", "add_or_remove_one"),
        ("fixed_size", "replace_one"),
        ("shuffled", "add_or_remove_one"),
    ],
)
def test_poisson_sampling_unsupported_json_rejected(scheme, relation) -> None:
    stored = {"sampling": scheme, "neighbouring": relation, "sampling_rate": 0.1}
    with pytest.raises(OsoError, match="must be 'poisson' with 'add_or_remove_one'"):
        PoissonSampling.from_json(stored)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_poisson_sampling_relation_chooses_accountant(accountant: str) -> None:
    """The accountant has the relation of the sampling and refuses events of another relation."""

    @dataclass(frozen=True)
    class Replacing(PoissonSampling):
        neighbouring: ClassVar[str] = "replace_special"

        @property
        def relation(self) -> NeighboringRelation:
            return NeighboringRelation.REPLACE_ONE

        def event(self, sums):
            return dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, sums)

    sampling = Replacing(0.01)
    assert PoissonSampling(0.01).relation is NeighboringRelation.ADD_OR_REMOVE_ONE
    wrong = composed_event({(PoissonSampling(0.01), 1.0): 1})
    if accountant == "rdp":
        with pytest.raises(UnsupportedEventError):
            compute_epsilon_of_event(sampling, wrong, 1e-5, accountant)
    with pytest.raises(UnsupportedEventError):  # batches of fixed size under add-or-remove-one
        compute_epsilon_of_event(
            PoissonSampling(0.01), composed_event({(sampling, 1.0): 1}), 1e-5, accountant
        )


RUNS = ["a", "b", "c"]


@pytest.fixture(params=["host", "there"])
def draws(request) -> BatchRNG:
    draws = BatchRNG(Seeded(), PoissonSampling(0.1), 1000, torch.device("cpu"))
    draws.is_on_accelerator = request.param == "there"  # the tensor code runs on any device
    return draws


@pytest.mark.parametrize("step", [1, 2])
def test_batch_rng_batches_ignore_accelerator_flag(step: int) -> None:
    """Batches are drawn on the host, so a run has the same ones on any device."""
    host, there = (
        BatchRNG(Seeded(), PoissonSampling(0.1), 1000, torch.device("cpu")) for _ in "ab"
    )
    there.is_on_accelerator = True
    for a, b in zip(host.batches(RUNS, step), there.batches(RUNS, step), strict=True):
        assert torch.equal(a, b)


def test_batch_rng_batches_equal_single_runs(draws: BatchRNG) -> None:
    indices, present = draws.batches(RUNS, 3)
    for run, run_id in enumerate(RUNS):
        assert torch.equal(indices[run][present[run]], batch_of(draws, run_id, 3))
    assert not indices[~present].any()
    longest = int(present.sum(dim=1).max())
    assert indices.shape[1] == padded_length(longest, indices.device)


def test_batch_rng_noise_equals_single_runs(draws: BatchRNG) -> None:
    together = normals_of(draws, RUNS, "noise", 5, 4, 3)
    assert together.shape == (3, 4, 3)
    assert torch.equal(together[1], normals_of(draws, ["b"], "noise", 5, 4, 3)[0])
    assert normals_of(draws, RUNS, "noise", 5).shape == (3,)


def deviates(draws: BatchRNG, run_id: str, purpose: str, step: int, size: int) -> Tensor:
    """The stream's own numbers, float64 [size]."""
    if draws.is_on_accelerator:
        return philox.normals([run_id], purpose, step, size, draws.device)[0]
    return torch.from_numpy(seeded_normals([run_id], purpose, step, (size,))[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_batch_rng_add_noise_matches_streams(draws, dtype, threads, monkeypatch) -> None:
    """Each of three sums gets noise from its own stream at its own deviation, rounded once."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    generator = torch.Generator().manual_seed(1)
    sizes = {"noise/first": 2 * NOISE_BLOCK + 5, "noise/second": 7, "noise/count": 0}
    totals = [
        torch.randn(3, *([size] if size else []), generator=generator, dtype=torch.float64).to(
            dtype
        )
        for size in sizes.values()
    ]
    before = [total.clone() for total in totals]
    deviations = [torch.tensor([0.5, 3.0, 1e4]), torch.tensor([7.0, 0.1, 2.0]), torch.ones(3) / 3]
    noise = [NoiseSpec(*each) for each in zip(sizes, deviations, strict=True)]
    noised = draws.add_noise(RUNS, 9, totals, noise)
    assert all(map(torch.equal, totals, before))
    for total, one, size, answer in zip(totals, noise, sizes.values(), noised, strict=True):
        assert (answer.dtype, answer.shape) == (dtype, total.shape)
        for run, run_id in enumerate(RUNS):
            added = deviates(draws, run_id, one.purpose, 9, size or 1)
            exact = added * float(one.deviation[run]) + total[run].double()
            assert torch.equal(answer[run].flatten(), exact.to(dtype))


def test_batch_rng_concurrent_threads_match_serial(monkeypatch) -> None:
    """Each of two threads draws its noise before the other one adds its own."""
    both = threading.Barrier(2, timeout=20)

    class Waiting(Seeded):
        def fill(self, *arguments) -> None:
            super().fill(*arguments)
            both.wait()

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    draws = BatchRNG(Waiting(), PoissonSampling(0.1), 1000, torch.device("cpu"))
    size = 2 * NOISE_BLOCK
    expected = seeded_normals(["a"], "noise", 1, (size,))
    assert torch.equal(normals_of(draws, ["a"], "noise", 1, size), torch.from_numpy(expected))


SOURCES = [Seeded(), SystemEntropy()]


class Given:
    """Words whose highest bits stand in a list; IndexError after that."""

    def __init__(self, values: tuple[int, ...], bits: int) -> None:
        self.left, self.bits = list(values), bits

    def __call__(self, count: int) -> np.ndarray:
        return np.array([self.left.pop(0) << (64 - self.bits) for _ in range(count)], dtype="u8")


@pytest.mark.parametrize("examples", [1, 2, 3, 4])
@pytest.mark.parametrize("eighths", range(1, 8))
def test_draw_binomial_all_bits_match_law(examples: int, eighths: int) -> None:
    """Over all bit patterns, rates of three binary digits give each size its binomial count."""
    patterns = product(range(2**examples), repeat=3)
    sizes = Counter(
        draw_binomial(examples, eighths / 8, Given(pattern, examples)) for pattern in patterns
    )
    expected = {
        size: math.comb(examples, size) * eighths**size * (8 - eighths) ** (examples - size)
        for size in range(examples + 1)
    }
    assert sizes == Counter({size: number for size, number in expected.items() if number})


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 0.999, 512 / 60_000, 1e-12, 2.0**-40])
def test_poisson_sampling_draw_uses_rate_digits(rate: float) -> None:
    """A number equal to the rate, or different in one binary digit, is compared correctly."""
    numerator, denominator = rate.as_integer_ratio()
    digits = denominator.bit_length() - 1
    for other in (0, *(1 << place for place in range(digits))):
        number = numerator ^ other
        given = tuple(number >> place & 1 for place in reversed(range(digits)))
        batch = PoissonSampling(rate).draw(1, Given(given, 1))
        assert len(batch) == (number < numerator)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("examples", [3, 4, 5])
def test_draw_subset_gives_subsets_equally_often(examples: int, size: int) -> None:
    """Over all sequences of four numbers, each subset is drawn equally often."""
    bits = (examples - 1).bit_length()
    found: Counter[tuple[int, ...]] = Counter()
    for pattern in product(range(2**bits), repeat=4):
        with suppress(IndexError):
            found[tuple(draw_subset(examples, size, Given(pattern, bits)).tolist())] += 1
    assert set(found) == set(combinations(range(examples), size))
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("source", SOURCES)
def test_poisson_sampling_few_records_match_law(source: RandomSource) -> None:
    """Each set of examples has the probability that independent draws give it."""
    examples, rate, draws = 5, 0.37, 6000
    words = [source.words("run", "sampling", step) for step in range(draws)]
    found = Counter(tuple(PoissonSampling(rate).draw(examples, each)) for each in words)
    subsets = [each for size in range(6) for each in combinations(range(5), size)]
    probabilities = [rate ** len(s) * (1 - rate) ** (5 - len(s)) for s in subsets]
    expected = draws * np.array(probabilities)
    assert sum(found.values()) == sum(found[each] for each in subsets)
    assert scipy.stats.chisquare([found[each] for each in subsets], expected).pvalue > 1e-5


@pytest.mark.parametrize("source", SOURCES)
def test_poisson_sampling_many_steps_match_law(source: RandomSource) -> None:
    """The study has 3,000 steps at q = 512 / 60,000."""
    examples, rate, runs = 60_000, 512 / 60_000, ("a", "b")
    batches = [
        [PoissonSampling(rate).draw(examples, source.words(run, "sampling", step)) for run in runs]
        for step in range(1, 3001)
    ]
    sizes = np.array([[len(batch) for batch in step] for step in batches])
    law = scipy.stats.binom(examples, rate)
    assert abs(sizes.mean() - 512) < 5 * law.std() / math.sqrt(6000)
    assert abs(sizes.var() / law.var() - 1) < 5 * math.sqrt(2 / 6000)
    edges = np.array([-np.inf, 470, 485, 495, 505, 512, 520, 530, 545, np.inf])
    cells = np.histogram(sizes, edges + 0.5)[0]
    assert scipy.stats.chisquare(cells, 6000 * np.diff(law.cdf(edges))).pvalue > 1e-5
    # Who takes part: each example as often as another, whatever its place in the data set.
    taken = np.bincount(np.concatenate([b for step in batches for b in step]), minlength=examples)
    assert abs(taken.var() / (6000 * rate * (1 - rate)) - 1) < 5 * math.sqrt(2 / examples)
    halves = taken.reshape(100, -1).sum(axis=1)
    assert scipy.stats.chisquare(halves, np.full(100, halves.mean())).pvalue > 1e-5
    odd = taken[1::2].sum() / taken.sum()
    assert abs(odd - 0.5) < 5 * 0.5 / math.sqrt(taken.sum())
    # Batches of two steps, and of two runs, have q^2 n examples in common.
    common = [len(np.intersect1d(a, b)) for a, b in batches[:500]]
    first = [step[0] for step in batches[:501]]
    later = [len(np.intersect1d(a, b)) for a, b in pairwise(first)]
    for number in (np.mean(common), np.mean(later)):
        assert abs(number - examples * rate**2) < 5 * math.sqrt(examples * rate**2 / 500)
    assert abs(np.corrcoef(sizes[:, 0], sizes[:, 1])[0, 1]) < 5 / math.sqrt(3000)
    assert abs(np.corrcoef(sizes[:-1, 0], sizes[1:, 0])[0, 1]) < 5 / math.sqrt(3000)


@pytest.mark.parametrize("bits", [1, 63, 64, 65, 128, 1000])
def test_draw_binomial_surplus_bits_ignored(bits: int) -> None:
    """With every bit a 1, no number is below 1/2 or 1/4; with every bit a 0, all are."""
    asked = []

    def ones(count: int) -> np.ndarray:
        asked.append(count)
        return np.full(count, 2**64 - 1, dtype=np.uint64)

    assert draw_binomial(bits, 0.5, ones) == 0
    assert draw_binomial(bits, 0.25, ones) == 0
    assert set(asked) == {-(-bits // 64)}
    assert draw_binomial(bits, 0.5, lambda count: np.zeros(count, dtype=np.uint64)) == bits


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rate", [1e-12, 0.001, 0.3, 0.5, 0.7, 0.999, 1.0])
def test_poisson_sampling_draw_gives_distinct_records(source: RandomSource, rate: float) -> None:
    for examples in (1, 2, 1000):
        batch = PoissonSampling(rate).draw(examples, source.words("run", "sampling", examples))
        assert batch.dtype == np.int64
        assert (np.diff(batch) > 0).all()
        assert set(batch) <= set(range(examples))
        deviation = math.sqrt(examples * rate * (1 - rate))
        assert abs(len(batch) - examples * rate) <= 6 * deviation + 1


@pytest.mark.parametrize("limit", [2, 3, 1000, 2**16 + 1, 60_000])
def test_uniform_below_matches_uniform_law(limit: int) -> None:
    drawn = uniform_below(limit, 20_000, Seeded().words("run", "sampling", limit))
    assert drawn.shape == (20_000,)
    assert 0 <= drawn.min() <= drawn.max() < limit
    cells = np.bincount(drawn * min(limit, 7) // limit, minlength=min(limit, 7))
    shares = np.bincount(np.arange(limit) * min(limit, 7) // limit) / limit
    assert scipy.stats.chisquare(cells, 20_000 * shares).pvalue > 1e-5


def test_poisson_sampling_draw_asks_few_words() -> None:
    """An example that is not drawn takes about two bits, not a complete number."""
    asked = 0
    words = Seeded().words("run", "sampling", 1)

    def counted(count: int) -> np.ndarray:
        nonlocal asked
        asked += count
        return words(count)

    PoissonSampling(512 / 120_000).draw(120_000, counted)
    assert asked < 3 * 512 + 2.2 * 120_000 / 64


INPUTS, TARGETS = torch.randn(20, 3), torch.zeros(20).long()


DATA, OTHER = TensorDataset(INPUTS, TARGETS), TensorDataset(torch.randn(20, 3), TARGETS)


PAIRS = [(0.0, 1)] * 20  # equal ones: content, of which nothing is told


class Own(Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, place: int) -> tuple[float, int]:
        return float(place), 0


def first_ten(data: Dataset) -> Subset:
    return Subset(data, range(10))


def last_ten(data: Dataset) -> Subset:
    return Subset(data, range(9, 20))


OWN = Own()


REPEATED = {
    "list": Subset(DATA, [0, *range(20)]),
    "numpy": Subset(DATA, np.array([3, 4, 3])),
    "tensor": Subset(DATA, torch.tensor([3, 4, 3])),
    "tensors": Subset(DATA, [torch.tensor(3), torch.tensor(3)]),
    "from the end": Subset(DATA, [0, 19, -1]),
    "a mask": Subset(DATA, [True, False, True]),
    "of a list": Subset(PAIRS, [1, 1]),
    "of a class of one's own": Subset(OWN, [1, 1]),
    "inner": first_ten(Subset(DATA, [7] * 20)),
    "outer": Subset(first_ten(DATA), [2, 2]),
    "third": first_ten(first_ten(Subset(DATA, [7] * 20))),
    "twice": ConcatDataset([DATA, DATA]),
    "sum": DATA + DATA,
    "own twice": ConcatDataset([OWN, OTHER, OWN]),
    "same tensors": ConcatDataset([DATA, TensorDataset(INPUTS, TARGETS)]),
    "overlapping": ConcatDataset([first_ten(DATA), last_ten(DATA)]),
    "overlapping sums": ConcatDataset([first_ten(DATA) + OTHER, last_ten(DATA) + OWN]),
    "whole and part": first_ten(DATA) + DATA,
    "subset of a sum": Subset(DATA + OTHER, [21, -19]),
    "stacked": StackDataset(Subset(INPUTS, [1, 1]), Subset(TARGETS, [1, 1])),
    "stacked by name": StackDataset(x=Subset(INPUTS, [1, 1]), y=Subset(TARGETS, [1, 1])),
    "stacks": StackDataset(first_ten(OWN), first_ten(DATA)) + StackDataset(OWN, DATA),
    "objects": Subset(DATA, np.array([3, 4, 3], dtype=object)),
    "whole numbers": Subset(DATA, [3.0, 4.0, 3]),
    "names": Subset(OWN, ["a", "b", "a"]),
    "pairs": Subset(OWN, [("a", 1), ("b", 1), ("a", 1)]),
    "a column": Subset(DATA, pd.Series([3, 4, 3], dtype=object)),
    "mixed": Subset(OWN, ["a", 3, 4, 3]),
    "mixed, from the end": Subset(OWN, ["a", len(OWN) - 1, -1]),
    "mixed and numbers": Subset(OWN, ["a", 3]) + Subset(OWN, [2, 3]),
    "beside names": ConcatDataset([Subset(DATA, [0, 0]), Subset(OWN, ["a", "b"])]),
    "names of a part": Subset(Subset(OWN, ["a", "b"]), [1, 1]),
}


@pytest.mark.parametrize("name", REPEATED)
def test_check_no_repeats_repeated_example_rejected(name) -> None:
    with pytest.raises(OsoError, match="data_loader: an example appears twice in a") as raised:
        check_no_repeats(REPEATED[name], "data_loader")
    assert "\n" not in str(raised.value)


ONCE = {
    "data": DATA,
    "equal examples": PAIRS,
    "no data set": None,
    "part": Subset(DATA, [5, 3, -1]),
    "nothing": Subset(DATA, []),
    "nothing twice": ConcatDataset([Subset(DATA, []), Subset(DATA, [])]) + DATA,
    "complements": ConcatDataset([first_ten(DATA), Subset(DATA, range(10, 20))]),
    "others": ConcatDataset([DATA, OTHER, OWN]),
    "equal content": Subset([*PAIRS], range(20)),
    "shuffled": Subset(ConcatDataset([DATA, OTHER]), np.random.default_rng(0).permutation(40)),
    "prompts that repeat": StackDataset(Subset(INPUTS, [1] * 20), TARGETS),
    "stacks of others": StackDataset(DATA, OWN) + StackDataset(OTHER, OWN),
    "names": Subset(OWN, ["a", "b", "3", 3]),
    "names of two": Subset(OWN, ["a", "b"]) + Subset(OTHER, ["a", "b"]),
    "a stack beside its parts": StackDataset(OWN, DATA) + OWN + DATA,
}


@pytest.mark.parametrize("name", ONCE)
def test_check_no_repeats_distinct_examples_accepted(name) -> None:
    check_no_repeats(ONCE[name], "data")


@pytest.mark.parametrize(
    "data",
    [
        Subset(first_ten(DATA), [50, 50]),
        Subset(DATA, [[0], [0]] * 3 + [["a"]]),
        Subset(DATA, [{}, {}]),
        DATA + Subset(first_ten(DATA), [50]),
    ],
)
def test_check_no_repeats_unclear_indices_rejected(data) -> None:
    with pytest.raises(OsoError, match=r"data: cannot tell whether a Subset or .* twice") as raised:
        check_no_repeats(data, "data")
    assert "\n" not in str(raised.value)


def test_check_no_repeats_million_finishes_quickly() -> None:
    begin = time.perf_counter()
    data = Subset(ConcatDataset([range(100_000)] * 10), range(1_000_000))
    with pytest.raises(OsoError):
        check_no_repeats(data, "data")
    assert time.perf_counter() - begin < 5


def test_batch_rng_lengths_equal_single_runs(draws: BatchRNG) -> None:
    """Padding counts for no run, also where an empty batch is drawn beside others."""
    draws.sampling = PoissonSampling(1e-3)  # of 1,000 examples: about a third are empty
    names = [f"run {i}" for i in range(40)]
    present = draws.batches(names, 1)[1].sum(dim=1).tolist()
    assert present == [len(batch_of(draws, name, 1)) for name in names]
    assert 0 in present
    assert max(present) > 1
