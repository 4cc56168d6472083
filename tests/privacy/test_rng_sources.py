"""The noise's and the batches' sources of random numbers: their laws, and no number twice."""

import functools
import math
import os
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.privacy.helpers import always_empty, seeded_normals

from oso_dp.errors import OsoError
from oso_dp.privacy import batch_rng, noise_range, philox, rng_sources, system_noise
from oso_dp.privacy.ledger import GAUSSIAN, LAPLACE, PURE, SumQuery
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient
from oso_dp.privacy.rng_sources import BLOCK, Seeded, SystemEntropy, get_source, init_generator
from oso_dp.privacy.sampling import PoissonSampling

CPU = torch.device("cpu")


MILLION = 1_000_003  # not a whole number of blocks


def normals(run_id: str, purpose: str, step: int, count: int, threads: int = 1) -> np.ndarray:
    return seeded_normals([run_id], purpose, step, (count,), threads)[0]


@pytest.mark.parametrize("count", [1, 5000, BLOCK, BLOCK + 1, 2**16 + 3, MILLION])
def test_seeded_noise_unchanged_by_threads(count: int) -> None:
    runs = ["a", "b", "c"]
    alone = seeded_normals(runs, "noise", 7, (count,))
    for threads in (2, 3, 16):
        assert np.array_equal(alone, seeded_normals(runs, "noise", 7, (count,), threads))
    assert np.array_equal(alone[1], normals("b", "noise", 7, count, 2))


def test_seeded_words_continue_stream() -> None:
    first, again = (Seeded().words("run", "sampling", 7) for _ in range(2))
    assert np.array_equal(np.concatenate([first(3), first(4)]), again(7))


def test_seeded_training_noise_never_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 steps of two runs and two queries, in one or two threads, repeat no number."""
    monkeypatch.setattr(rng_sources, "BLOCK", 8)
    drawn: list[np.ndarray] = []
    fill = Seeded.fill

    def kept(self: Seeded, out: np.ndarray, *arguments: Any) -> None:
        fill(self, out, *arguments)
        drawn.append(out.copy())

    class Nothing:
        def norms(self) -> torch.Tensor:
            return torch.zeros(2, 0)

        def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
            return torch.zeros(2, 2, 20)

    monkeypatch.setattr(Seeded, "fill", kept)
    monkeypatch.setattr(batch_rng, "NOISE_BLOCK", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 + len(drawn) % 2)
    mechanism = always_empty(Mechanism(["a", "b"], records=10**6, batch_size=1))
    queries = [ClippedGradient(1.0, torch.ones(2)), ClippedDirection(1.0, torch.ones(2))]
    for step in range(1, 3001):
        mechanism.release(slice(0, 2), step, queries, lambda *_: Nothing())
    numbers = np.concatenate([each.ravel() for each in drawn])
    assert len(numbers) == 3000 * 2 * 2 * 20
    assert len(np.unique(numbers)) == len(numbers)


def test_stream_key_digests_differ() -> None:
    """Equal noise of two steps, or of two parts of one vector, cancels in a difference."""
    whose = "run", "noise/clipped_gradient/1"
    steps = {rng_sources.StreamKey(*whose, step, 0).digest for step in range(1, 200_001)}
    blocks = {rng_sources.StreamKey(*whose, 1, block).digest for block in range(50_000)}
    assert (len(steps), len(blocks)) == (200_000, 50_000)
    assert len(steps & blocks) == 1  # the first of both


def test_stream_key_states_differ() -> None:
    purposes = ("sampling", "noise/clipped_gradient/1", "noise/clipped_direction/7")
    parts = list(product(("a", "b", "a1"), purposes, (*range(1, 3001), 11, 111), range(4)))
    keys = {
        rng_sources.StreamKey(*part).generate_state(3, np.uint64).tobytes() for part in set(parts)
    }
    assert len(keys) == len(set(parts)) > 100_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("run", "1noise", 1, 0), ("run1", "noise", 1, 0)),
        (("run", "noise1", 1, 0), ("run", "noise", 11, 0)),
        (("run", "noise", 1, 11), ("run", "noise", 11, 1)),
        (("run", "noise", 1, 0), ("run", "noise", 10, 0)),
    ],
)
def test_stream_key_similar_parts_differ(one: tuple, other: tuple) -> None:
    assert (
        rng_sources.StreamKey(*one).bits().random_raw()
        != rng_sources.StreamKey(*other).bits().random_raw()
    )


def test_stream_key_bits_share_start_count() -> None:
    """All streams count from the same start, so two streams with different keys never overlap."""
    for step in range(1, 100):
        bits = rng_sources.StreamKey("run", "noise", step, 0).bits()
        assert bits.state["state"]["state"][3] == 13  # from 1, and twelve words thrown away


def test_stream_key_uses_192_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 192 bits of the hash counts: 64 would let some of a study's streams meet."""

    class Digest:
        def __init__(self, name: bytes) -> None:
            self.value = 1 << int(name.rpartition(b"\0")[2])

        def digest(self) -> bytes:
            return self.value.to_bytes(32, "little")

    monkeypatch.setattr(rng_sources.hashlib, "sha256", Digest)
    first = {
        rng_sources.StreamKey("run", "noise", 1, bit).bits().random_raw() for bit in range(192)
    }
    assert len(first) == 192


class TestTheNoisesLaw:
    """A million numbers: 62 blocks, each of a generator of its own."""

    drawn = normals("run", "noise", 1, MILLION, 2)

    def test_seeded_noise_matches_normal_moments(self) -> None:
        assert scipy.stats.kstest(self.drawn, "norm").pvalue > 1e-5
        assert abs(self.drawn.mean()) < 5 / MILLION**0.5
        assert abs(self.drawn.var() - 1) < 5 * (2 / MILLION) ** 0.5
        assert abs((self.drawn**4).mean() - 3) < 5 * (96 / MILLION) ** 0.5

    @pytest.mark.parametrize("far", [2.0, 3.0, 4.0, 4.5])
    def test_seeded_noise_tails_match_normal(self, far: float) -> None:
        expected = MILLION * scipy.stats.norm.sf(far)
        for side in (self.drawn > far, self.drawn < -far):
            assert abs(side.sum() - expected) < 5 * expected**0.5

    def test_seeded_noise_blocks_uncorrelated(self) -> None:
        blocks = self.drawn[: 61 * BLOCK].reshape(61, BLOCK)
        for values in (blocks, blocks**2):
            correlation = np.corrcoef(values) - np.eye(61)
            assert np.abs(correlation).max() < 6 / BLOCK**0.5
        across = np.corrcoef(blocks[:-1, -1], blocks[1:, 0])[
            0, 1
        ]  # a block's end, the next's start
        assert abs(across) < 5 / 60**0.5

    def test_seeded_noise_uses_all_digits(self) -> None:
        """The noise has all binary digits of float64, unlike a converted float32."""
        part = np.abs(self.drawn)
        whole = (part[(part >= 1) & (part < 2)] * 2.0**52).astype(np.uint64)
        for place in range(48):  # the highest ones follow the density
            share = (whole >> np.uint64(place) & np.uint64(1)).mean()
            assert abs(share - 0.5) < 5 * 0.5 / len(whole) ** 0.5 + 2.0 ** (place - 52)
        assert len(np.unique(self.drawn)) == MILLION


def test_init_generator_differs_by_seed() -> None:
    first = [init_generator(f"seed {seed}", "weights", 0).random() for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]


class TestSystemEntropy:
    """Fresh at every call, and of the stated distributions."""

    def test_words_have_uniform_bits(self) -> None:
        words = SystemEntropy().words("run", "sampling", 1)(50_000)
        assert words.dtype == np.uint64
        ones = [(words >> np.uint64(place) & np.uint64(1)).mean() for place in range(64)]
        assert np.abs(np.array(ones) - 0.5).max() < 6 * 0.5 / 50_000**0.5

    @pytest.mark.parametrize(("runs", "size"), [(2, 100_000), (400, 500), (200_000, 1)])
    def test_noise_normal_and_uncorrelated(self, runs: int, size: int) -> None:
        drawn = system_normals(runs, size)
        assert drawn.shape == (runs, size)
        assert scipy.stats.kstest(drawn.ravel(), "norm").pvalue > 1e-6
        four = drawn.reshape(4, -1)
        assert np.abs(np.corrcoef(four) - np.eye(4)).max() < 0.03

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 2**16, 2**16 + 1, 2**17 + 3])
    @pytest.mark.parametrize("runs", [1, 2, 7])
    def test_noise_any_shape_distinct_and_finite(self, runs: int, count: int) -> None:
        drawn = system_normals(runs, count)
        assert drawn.shape == (runs, count)
        assert len(np.unique(drawn)) == runs * count
        assert np.isfinite(drawn).all()

    def test_repeated_request_differs(self) -> None:
        words = SystemEntropy().words
        for ask in (lambda: words("a", "b", 1)(100), lambda: system_normals(1, 100)[0]):
            assert not set(ask()) & set(ask())

    def test_global_seeds_have_no_effect(self) -> None:
        draws = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            torch.manual_seed(1)
            words = SystemEntropy().words("run", "sampling", 1)(4)
            draws.append({*words, *system_normals(1, 4)[0]})
        assert not draws[0] & draws[1]

    def test_noise_moments_and_tails_match_normal(self) -> None:
        """Moments up to the eighth and tail counts of ten million numbers are compared."""
        count = 10**7
        (numbers,) = system_normals(1, count)
        powers = np.ones(count)
        for order in range(1, 9):
            powers *= numbers
            law = scipy.stats.norm.moment(order), scipy.stats.norm.moment(2 * order)
            deviation = ((law[1] - law[0] ** 2) / count) ** 0.5
            assert abs(powers.mean() - law[0]) < 6 * deviation, order
        for place in np.arange(-4.9, 4.95, 0.35):
            tail = scipy.stats.norm.sf(abs(place))
            beyond = (numbers > place if place > 0 else numbers < place).sum()
            assert abs(beyond - count * tail) < 6 * (count * tail) ** 0.5 + 1, place

    @pytest.mark.parametrize(("runs", "size", "blocks"), [(2, 3 * 2**15 + 1, 4), (9, 2**14, 3)])
    def test_noise_blocks_use_fresh_keys(self, runs, size, blocks, monkeypatch) -> None:
        keys, real = [], os.urandom

        def urandom(count: int) -> bytes:
            keys.append(real(count))
            return keys[-1]

        monkeypatch.setattr(os, "urandom", urandom)
        ask = functools.partial(system_normals, runs, size)
        drawn = ask()
        assert len(keys) == len(set(keys)) == blocks
        assert {len(key) for key in keys} == {32}
        again = [*keys]
        monkeypatch.setattr(os, "urandom", lambda count: again.pop(0))
        assert np.array_equal(ask(), drawn)

    def test_noise_extreme_bytes_stay_finite(self, monkeypatch) -> None:
        for byte in (b"\x00", b"\xff"):
            monkeypatch.setattr(os, "urandom", lambda count, byte=byte: byte * count)
            assert np.isfinite(system_normals(1, 3)).all()


def system_normals(runs: int, size: int) -> np.ndarray:
    """The system's noise before it is rounded."""
    nothing, ones = torch.zeros(runs, size, dtype=torch.float64), torch.ones(runs).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system_noise, "round_to_grid", lambda numbers, spacing: numbers)
        return system_noised(nothing, ones).numpy()


def system_noised(totals: torch.Tensor, deviations: torch.Tensor) -> torch.Tensor:
    run_ids = [f"run {number}" for number in range(len(totals))]
    return SystemEntropy().add_noise(run_ids, ["noise"], 1, [totals], [deviations])[0]


DEVIATIONS = torch.tensor([1.0, 1.3, 0.999, 2.0**-40, 3e-30, 7e20, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_system_entropy_sums_rounded_to_grid(dtype) -> None:
    """The grid is a thousandth of the deviation, so the lowest bits reveal nothing of the sum."""
    totals = torch.randn(len(DEVIATIONS), 10_001, dtype=torch.float64) * DEVIATIONS[:, None] * 50
    totals[-1] = torch.randn(10_001) * 1e-30  # without noise
    totals = totals.to(dtype)
    noised = system_noised(totals, DEVIATIONS)
    assert (noised.dtype, noised.shape) == (dtype, totals.shape)
    assert torch.equal(noised[-1], totals[-1])
    for deviation, rows in zip(DEVIATIONS[:-1].tolist(), noised.double(), strict=False):
        places = rows / 2.0 ** math.floor(math.log2(deviation) - 10)
        assert torch.equal(places, places.round())
        assert (places % 2 == 1).any()
        assert len(places.unique()) > 9_000  # none is rounded further


@pytest.mark.parametrize("sizes", [(3, 4), (1, 2**16), (2**16 - 1, 2, 5), (40_000, 40_000, 1)])
@pytest.mark.parametrize("runs", [1, 3])
def test_system_entropy_sums_share_no_number(sizes, runs, monkeypatch) -> None:
    monkeypatch.setattr(system_noise, "round_to_grid", lambda numbers, spacing: numbers)
    nothing = [torch.zeros(runs, size, dtype=torch.float64) for size in sizes]
    ones = [torch.ones(runs, dtype=torch.float64)] * len(sizes)
    names = [f"noise {size}" for size in range(len(sizes))]
    noised = SystemEntropy().add_noise(["a"] * runs, names, 1, nothing, ones)
    assert [one.shape for one in noised] == [one.shape for one in nothing]
    numbers = torch.cat([one.flatten() for one in noised])
    assert len(numbers.unique()) == runs * sum(sizes)
    assert len(numbers.abs().unique()) == runs * sum(sizes)


@pytest.mark.parametrize("source", [Seeded(), SystemEntropy()])
def test_batch_rng_without_sums_returns_empty(source) -> None:
    """A training without privacy has steps without noisy sums."""
    draws = batch_rng.BatchRNG(source, PoissonSampling(0.1), 9, CPU)
    assert draws.add_noise(["a"], 1, [], []) == []


def test_system_entropy_sum_rounded_to_nearest(monkeypatch) -> None:
    """The float64 sum with its noise is rounded to the nearest grid point."""
    totals = torch.randn(3, 5000)
    deviations = torch.tensor([0.7, 20.0, 1e-3], dtype=torch.float64)
    monkeypatch.setattr(os, "urandom", lambda count: b"7" * count)
    noised = system_noised(totals, deviations)
    exact = totals.double() + torch.from_numpy(system_normals(3, 5000)) * deviations[:, None]
    spacing = 2.0 ** (deviations.log2() - 10).floor()[:, None]
    assert torch.equal(noised, (torch.round(exact / spacing) * spacing).float())


def test_batch_rng_far_noise_not_truncated(monkeypatch) -> None:
    """An outcome beyond the range of truncated noise would reveal the data."""
    for far in (-38.0, -6.0, 6.0, 9.0, 38.0):

        class Far:
            def __init__(self, bits: np.random.SFC64) -> None:
                pass

            def standard_normal(self, out: np.ndarray, far: float = far) -> None:
                out[:] = far

        with monkeypatch.context() as patch:
            patch.setattr(np.random, "Generator", Far)
            patch.setattr(
                system_noise,
                "box_muller",
                lambda words, _, far=far: torch.full(words.flatten().shape, far).double(),
            )
            for randomness in (Seeded(), SystemEntropy()):
                numbers = batch_rng.BatchRNG(randomness, PoissonSampling(0.1), 9, CPU)
                noise = batch_rng.NoiseSpec("noise", torch.tensor([0.5]))
                (noised,) = numbers.add_noise(["a"], 1, [torch.full((1, 7), 2.0)], [noise])
                assert noised[0].tolist() == pytest.approx([2 + far / 2] * 7)


def box_muller(words: torch.Tensor) -> torch.Tensor:
    values = torch.empty(3, words.shape[1], dtype=torch.float64)
    return system_noise.box_muller(words, values).clone()


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("size", [1, 2, 5, 4096])
def test_box_muller_matches_formula(size: int) -> None:
    words = torch.randint(LEAST, MOST, (2, size))
    numbers = box_muller(words)
    for place in {0, size // 2, size - 1}:
        tail = (abs(words[0, place].item()) + 0.5) / 2**63
        radius, angle = math.sqrt(-2 * math.log(tail)), math.pi * words[1, place].item() / 2**63
        assert numbers[place].item() == pytest.approx(radius * math.sin(angle), abs=1e-12)
        assert numbers[size + place].item() == pytest.approx(radius * math.cos(angle), abs=1e-12)


def test_box_muller_tails_have_no_gaps() -> None:
    """Gaps between values in the tails would reveal which sums are possible."""
    words = torch.zeros(2, 4, dtype=torch.int64)  # angle 0: the radius and nothing else
    assert box_muller(words)[4:].tolist() == pytest.approx([noise_range.SYSTEM_NORMAL] * 4)
    words = torch.stack([torch.arange(2**12, 2**13), torch.zeros(2**12, dtype=torch.int64)])
    found = box_muller(words)[2**12 :]  # beyond 8.2
    assert len(found.unique()) == 4096
    assert (found.diff().abs() < 6e-5).all()
    extremes = torch.tensor([LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST])
    assert box_muller(torch.cartesian_prod(extremes, extremes).T.contiguous()).isfinite().all()


@given(
    nu=st.floats(0.05, 100),
    rate=st.floats(1e-4, 1),
    steps=st.integers(1, 10**5),
    numbers=st.integers(1, 10**8),
    delta=st.floats(1e-25, 0.1),
)
def test_check_range_limits_excluded_probability(nu, rate, steps, numbers, delta) -> None:
    """Outcomes that bounded noise excludes may have at most a hundredth of delta."""
    far = [scipy.stats.norm.sf(noise_range.SYSTEM_NORMAL - moved) for moved in (1 / nu, 0)]
    excluded = steps * (rate * far[0] + 2 * numbers * far[1])
    asked = (delta, nu, PoissonSampling(rate), steps, numbers)
    if excluded < 0.0099 * delta:
        noise_range.check_range(*asked)
    if excluded > 0.0101 * delta:
        with pytest.raises(OsoError, match="use a smaller epsilon or a larger delta"):
            noise_range.check_range(*asked)


@given(
    noise=st.lists(st.floats(0.02, 10), min_size=1, max_size=3),
    times=st.floats(1e-3, 1e6),
    delta=st.floats(1e-15, 0.1),
    normal=st.sampled_from([noise_range.SYSTEM_NORMAL, noise_range.TORCH_NORMAL]),
    kind=st.sampled_from([GAUSSIAN, LAPLACE, PURE]),
)
def test_check_moves_limits_excluded_probability(noise, times, delta, normal, kind) -> None:
    if kind == GAUSSIAN:
        beyond = [scipy.stats.norm.sf(normal - 1 / nu) for nu in noise]
    else:
        beyond = [scipy.stats.laplace.sf(max(0, 53 * math.log(2) - 1 / nu)) for nu in noise]
    excluded = times * sum(beyond)
    moves = [(SumQuery("sum", nu, kind), times) for nu in noise]
    if excluded < 0.0099 * delta:
        noise_range.check_moves(delta, moves, normal)
    if excluded > 0.0101 * delta:
        with pytest.raises(OsoError, match=f"^noise multiplier {min(noise):.3g}: noise is bounded"):
            noise_range.check_moves(delta, moves, normal)


def test_get_source_unknown_name_rejected() -> None:
    assert isinstance(get_source("seeded"), Seeded)
    assert isinstance(get_source("system"), SystemEntropy)
    with pytest.raises(OsoError, match="randomness: 'dice'; must be one of seeded, system"):
        get_source("dice")


LETTERS = [chr(number) for number in (*range(1, 0xD800, 3), *range(0xE000, 0x1FFFF, 7))]


PLACES = "0123456789abcdef" * 8
NAMES = {
    "one character": [PLACES, *(f"{PLACES[:i]}_{PLACES[i + 1 :]}" for i in range(len(PLACES)))],
    "ends": [PLACES, f"{PLACES}/1", f"{PLACES}/11", PLACES.upper(), f" {PLACES}"],
    "letters": [f"run {letter}" for letter in LETTERS],
    "lengths": [f"{'x' * length}{end}" for length in range(1, 2000, 3) for end in "ab"],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_stream_key_similar_names_differ(names: list[str]) -> None:
    for parts in ([(name, "noise") for name in names], [("run", name) for name in names]):
        assert len({rng_sources.StreamKey(*part, 1, 0).digest for part in parts}) == len(names)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_philox_similar_names_differ(names: list[str]) -> None:
    drawn = philox.normals(names, "noise", 1, 1, torch.device("cpu"))
    assert len(drawn.unique()) == len(names)
    some = names[:: max(1, len(names) // 200)]
    purposes = [philox.normals(["run"], name, 1, 1, torch.device("cpu")) for name in some]
    assert len(torch.cat(purposes).unique()) == len(some)
