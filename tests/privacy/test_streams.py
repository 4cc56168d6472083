"""The counter-based generator, and streams as long as any training."""

import ctypes
import math
import os
import re
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from tests.privacy.helpers import Given, batch_of, normals_of
from torch.cuda.jiterator import _CodeParser

from oso_dp.errors import OsoError
from oso_dp.privacy import chacha20, philox, system_noise
from oso_dp.privacy.batch_rng import NOISE_BLOCK, BatchRNG
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_reference_vectors_match(counter, key, expected) -> None:
    """The test vectors of the generator's authors (Random123)."""
    found = philox.philox(*([torch.tensor(word) for word in words] for words in (counter, key)))
    assert [int(word) for word in found] == expected


def test_philox_normals_match_gaussian_law() -> None:
    drawn = philox.normals(["a"], "noise", 1, 100_001, CPU)
    assert drawn.shape == (1, 100_001)
    assert drawn.dtype == torch.float64
    assert scipy.stats.kstest(drawn[0].numpy(), "norm").pvalue > 1e-4
    half = 50_000  # of one pair's two numbers neither tells the other
    assert abs(np.corrcoef(drawn[0, :half], drawn[0, half:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[0, :half] ** 2, drawn[0, half:-1] ** 2)[0, 1]) < 0.02


def test_philox_normals_extreme_words_match_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are 0 and 2^53 - 1 for the radius, and 0 and a right angle for the angle."""
    last, right = 2.0**53 - 1, 2.0**51
    words = torch.tensor([[0.0, last, 0.0]]).double(), torch.tensor([[0.0, 0.0, right]]).double()
    monkeypatch.setattr(philox, "pairs", lambda *_: words)
    longest = math.sqrt(2 * 53 * math.log(2))
    found = philox.normals(["a"], "x", 1, 6, CPU)[0].tolist()
    assert found == pytest.approx([longest, 0, 0, 0, 0, longest], abs=1e-12)


def test_philox_pairs_have_53_uniform_bits() -> None:
    drawn = torch.cat(philox.pairs(["a"], "noise", 1, 50_002, CPU), dim=1)[0] * 2.0**-53
    assert 0 <= float(drawn.min()) < float(drawn.max()) < 1
    assert scipy.stats.kstest(drawn.numpy(), "uniform").pvalue > 1e-4
    assert len(drawn.unique()) == 50_002  # 32 bits would repeat some
    assert (drawn * 2**53 % 2).unique().tolist() == [0, 1]


def test_philox_normals_use_four_hash_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 bits of key alone would let some of tens of millions of streams meet."""

    class Digest:
        def __init__(self, name: bytes) -> None:
            self.place = int(name.partition(b"\0")[0])

        def digest(self) -> bytes:
            return bytes(1 if i == 4 * self.place else 0 for i in range(32))

    monkeypatch.setattr(philox.hashlib, "sha256", Digest)
    drawn = philox.normals(["0", "1", "2", "3"], "x", 1, 4, CPU)
    assert len(drawn.unique()) == 16


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory):
    """What CUDA is given to compile, by the host's compiler: each maps int64 [n, i] to [n, o]."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler is here to read CUDA's kernels")
    folder = tmp_path_factory.mktemp("kernel")
    entries = [ENTRY.format(name=name, takes=takes, gives=gives,
                            inputs=", ".join(f"words[{i}]" for i in range(takes)),
                            outputs=", ".join(f"numbers[{i}]" for i in range(gives)))
               for name, (_, takes, gives, _) in KERNELS.items()]  # fmt: skip
    code = [kernel for kernel, *_ in KERNELS.values()] + entries
    (folder / "kernel.cpp").write_text("\n".join(code))
    library = folder / "kernel.so"
    options = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library)]
    subprocess.run([compiler, *options, str(folder / "kernel.cpp")], check=True, timeout=120)
    compiled = ctypes.CDLL(str(library))

    def found(name: str, words: torch.Tensor) -> torch.Tensor:
        numbers = torch.empty(len(words), KERNELS[name][2], dtype=torch.int64)
        places = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (words, numbers))
        getattr(compiled, f"of_all_{name}")(ctypes.c_longlong(len(words)), *places)
        return numbers

    return found


ENTRY = """
extern "C" void of_all_{name}(long long count, const long long* words, long long* numbers) {{
    for (; count--; words += {takes}, numbers += {gives}) {name}<long long>({inputs}, {outputs});
}}
"""
# Their source, how many numbers they take and give, and the same in tensor operations.
KERNELS = {
    "whole_numbers": (philox.KERNEL, 6, 2, philox.integers),
    "key_stream": (chacha20.KERNEL, 5, 8, chacha20.key_stream),
}


@pytest.mark.parametrize("name", KERNELS)
def test_cuda_kernel_matches_tensor_operations(kernels, name: str) -> None:
    """100,000 counters and keys are compared, with the smallest and the largest words."""
    torch.manual_seed(0)
    _, takes, _, operations = KERNELS[name]
    least, most = (0, 2**32 - 1) if name == "whole_numbers" else (-(2**63), 2**63 - 1)
    words = torch.randint(least, most, (100_000, takes))
    words = torch.cat([words, torch.cartesian_prod(*[torch.tensor([least, 0, most])] * takes)])
    if name == "key_stream":
        words[:, 0] &= 2**32 - 1  # the number of a block
    words = words.contiguous()
    expected = torch.stack(operations(*words.T), dim=1)
    assert torch.equal(kernels(name, words), expected)


@pytest.mark.parametrize("name", KERNELS)
def test_cuda_kernel_signature_parsed_by_torch(name: str) -> None:
    """A kernel is one template, whose last function has inputs and outputs by reference."""
    kernel, takes, gives, _ = KERNELS[name]
    parsed = _CodeParser(kernel)
    assert parsed.function_name == name
    assert parsed.template_params == "<typename T>"
    parameters = parsed.function_params.partition(")")[0]
    assert re.findall(r"T(&?) \w+", parameters) == [""] * takes + ["&"] * gives
    assert max(takes, gives) <= 8  # torch's limit


# RFC 8439, appendix A.1, first vector: the key and the counter are zero.
ZERO_KEY = bytes.fromhex(
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 4097])
def test_chacha20_host_and_device_match_standard(count: int, monkeypatch) -> None:
    assert chacha20.device_words(bytes(32), 8, CPU).numpy().tobytes() == ZERO_KEY
    for key in (bytes(32), b"\xff" * 32, bytes(range(32)), os.urandom(32)):
        monkeypatch.setattr(os, "urandom", lambda size, key=key: key[:size])
        words = torch.full((count,), 7)  # what was there before does not show
        chacha20.draw_words(words)
        assert torch.equal(chacha20.device_words(key, count, CPU), words)


MANY = 2**20 + 3


LAGS = [1, 2, 3, 64, 1000, *(2**k for k in range(8, 20))]


# Wherever a counter of so many bits, or somebody's limit, would start again.
STEPS = [
    *range(1, 130),
    *(2**k + more for k in range(8, 17) for more in (-1, 0, 1)),
    *(1000, 1001, 1171, 1172, 1173, 2999, 3000, 3001, 5000, 10_000, 2**20 + 1, 2**30 + 1),
]


@pytest.fixture(params=["host", "accelerator", "system"])
def draws(request, monkeypatch) -> BatchRNG:
    randomness = SystemEntropy() if request.param == "system" else Seeded()
    made = BatchRNG(randomness, PoissonSampling(0.5), MANY, torch.device("cpu"))
    made.is_on_accelerator = request.param == "accelerator"  # the tensor code runs on any device
    # The system's numbers before they are rounded: afterwards some are equal.
    monkeypatch.setattr(system_noise, "round_to_grid", lambda numbers, spacing: numbers)
    return made


def correlations(values: np.ndarray) -> np.ndarray:
    """With itself, so many places on: of numbers with deviation 1."""
    values = (values - values.mean()) / values.std()
    return np.array([np.mean(values[:-lag] * values[lag:]) for lag in LAGS])


def test_batch_rng_long_noise_uncorrelated(draws: BatchRNG) -> None:
    """No number in one sum of a network's size repeats or depends on another."""
    drawn = normals_of(draws, ["a"], "noise/x", 7, MANY)[0].numpy()
    assert drawn.shape == (MANY,)
    assert len(np.unique(drawn)) >= MANY - 2
    for values in (drawn, drawn**2, np.sign(drawn)):
        assert np.abs(correlations(values)[: None if values is drawn else -4]).max() < 0.01
    for part in (drawn[: 2**16], drawn[2**16 :], drawn[-(2**16) :]):
        assert scipy.stats.kstest(part, "norm").pvalue > 1e-6


@pytest.mark.parametrize("source", [Seeded, SystemEntropy])
def test_random_source_million_words_differ(source) -> None:
    """A batch of a large data set draws a million words at once."""
    words = source().words("a", "sampling", 7)(MANY)
    assert words.dtype == np.uint64
    assert len(np.unique(words)) == MANY
    bits = np.unpackbits(words.view(np.uint8))
    assert bits.mean() == pytest.approx(0.5, abs=3e-4)  # 5 deviations


def test_batch_rng_large_batch_uncorrelated(draws: BatchRNG) -> None:
    taken = np.zeros(MANY)
    taken[batch_of(draws, "a", 7).numpy()] = 1.0
    assert taken.mean() == pytest.approx(0.5, abs=0.0025)  # 5 deviations
    assert np.abs(correlations(taken)).max() < 0.01
    for part in np.array_split(taken, 16):
        assert part.mean() == pytest.approx(0.5, abs=0.01)


def test_batch_rng_short_noise_uncorrelated(draws: BatchRNG) -> None:
    """Every pair of 24 numbers is uncorrelated over 2,000 runs, in value and in square."""
    drawn = normals_of(draws, [f"run {i}" for i in range(2000)], "noise/x", 7, 24)
    for values in (drawn, drawn**2):
        correlations = torch.corrcoef(values.T) - torch.eye(24)
        assert correlations.abs().max() < 6 / math.sqrt(2000)


@pytest.mark.parametrize("size", [2**11, NOISE_BLOCK, NOISE_BLOCK + 2001, 4 * NOISE_BLOCK])
def test_batch_rng_noise_halves_uncorrelated(size: int, draws: BatchRNG) -> None:
    """Each of two opposite numbers has the right law, but their sum would reveal the data."""
    drawn = normals_of(draws, ["a"], "noise/x", 7, size)[0].numpy()
    blocks = [drawn, *(drawn[start : start + NOISE_BLOCK] for start in range(0, size, NOISE_BLOCK))]
    for block in blocks:
        half = len(block) // 2
        first, last = block[:half], block[-half:]
        for one, other in ((first, last[::-1]), (first, last), (block[:-1:2], block[1::2])):
            for values in ((one, other), (one**2, other**2)):
                assert abs(np.corrcoef(*values)[0, 1]) < 6 / math.sqrt(len(one))


def test_batch_rng_steps_share_no_noise(draws: BatchRNG) -> None:
    noise = [normals_of(draws, ["a", "b"], "noise/x", step, 3).flatten() for step in STEPS]
    assert len(torch.cat(noise).unique()) == 6 * len(STEPS)


def test_batch_rng_steps_share_no_batch(draws: BatchRNG) -> None:
    draws.records = 200
    batches = [tuple(batch_of(draws, run, step).tolist()) for run in "ab" for step in STEPS]
    assert len(set(batches)) == 2 * len(STEPS)
    together = [draws.batches(["c", "d"], step) for step in STEPS]
    batches = [
        tuple(i[p].tolist()) for indices, own in together for i, p in zip(indices, own, strict=True)
    ]
    assert len(set(batches)) == 2 * len(STEPS)


@pytest.mark.parametrize("steps", [(50, 51), (1024, 1025)])
def test_batch_rng_successive_steps_uncorrelated(steps, draws: BatchRNG) -> None:
    """A step that moved a stream by one place would give a shifted copy of the noise."""
    first, second = (normals_of(draws, ["a"], "noise/x", step, 20_000)[0] for step in steps)
    for shift in (0, 1, 2, 4, -1, -2, -4):
        moved = second.roll(shift)
        assert abs(torch.corrcoef(torch.stack([first, moved]))[0, 1]) < 0.04
    assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.parametrize("examples", [1000, 200_000])
def test_batch_rng_full_rate_draws_all(examples: int, draws: BatchRNG) -> None:
    draws.records, draws.sampling = examples, PoissonSampling(1.0)
    indices, present = draws.batches(["a", "b"], 1)
    for run in range(2):
        assert torch.equal(indices[run][present[run]], torch.arange(examples))


@pytest.mark.parametrize("microbatch_size", [1, 3])
def test_mechanism_small_microbatches_all_summed(microbatch_size: int) -> None:
    mechanism = Mechanism(["a", "b"], 400, 400, microbatch_size=microbatch_size)
    query = [ClippedGradient(1e-6, torch.ones(2))]
    answers = mechanism.release(slice(0, 2), 1, query, lambda _, b: Given(torch.ones(*b.shape, 1)))
    assert (answers[ClippedGradient] * 400).flatten().tolist() == pytest.approx([400, 400])


LAST = 3100


@pytest.fixture(scope="module")
def trained() -> tuple[Mechanism, torch.Tensor]:
    """A mechanism after all steps of a long training of two runs, and its noise."""
    mechanism = Mechanism(["a", "b"], 40, 10, noise_multiplier=2.0)
    query, zeros = [ClippedGradient(2.0, torch.tensor([0.5, 3.0]))], torch.zeros(40, 4)
    noise = torch.empty(LAST, 2, 4)
    for step in range(1, LAST + 1):
        answers = mechanism.release(slice(0, 2), step, query, lambda _, b: Given(zeros[b]))
        noise[step - 1] = answers[ClippedGradient] * 10
    return mechanism, noise


class TestALongTraining:
    """As at its beginning, so at its end."""

    def test_mechanism_noise_deviation_stays_constant(self, trained) -> None:
        noise = trained[1] / torch.tensor([0.5 * 2.0, 3.0 * 2.0])[:, None]
        edges = [0, 50, 100, 1024, 1124, 2048, 2999, LAST]
        for start, end in pairwise(edges):
            part = noise[start:end].flatten()
            assert part.std().item() == pytest.approx(1.0, abs=4 / math.sqrt(2 * len(part)))
            assert part.mean().item() == pytest.approx(0.0, abs=4 / math.sqrt(len(part)))
        assert len(noise.flatten(0, 1).unique(dim=0)) == 2 * LAST

    @pytest.mark.parametrize("step", [1, 1025, 10**6])
    def test_mechanism_noise_below_budget_rejected(self, step: int) -> None:
        mechanism = Mechanism(["a"], 40, 10, noise_multiplier=2.0)
        with pytest.raises(OsoError, match="must be >= the step's, 2"):
            mechanism.release(slice(0, 1), step, [ClippedGradient(1.9, torch.ones(1))], Given)
