"""The accelerator's streams: the published generator, and nobody's numbers twice."""

import ctypes
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
import scipy.stats
import torch
from torch.cuda.jiterator import _CodeParser

from oso_dp.privacy import philox

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
def test_known_answers(counter, key, expected) -> None:
    """The test vectors of the generator's authors (Random123)."""
    found = philox.philox(*([torch.tensor(word) for word in words] for words in (counter, key)))
    assert [int(word) for word in found] == expected


def test_normals_are_gaussian() -> None:
    drawn = philox.normals(["a"], "noise", 1, 100_001, CPU)
    assert drawn.shape == (1, 100_001)
    assert drawn.dtype == torch.float64
    assert scipy.stats.kstest(drawn[0].numpy(), "norm").pvalue > 1e-4
    half = 50_000  # of one pair's two numbers neither tells the other
    assert abs(np.corrcoef(drawn[0, :half], drawn[0, half:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[0, :half] ** 2, drawn[0, half:-1] ** 2)[0, 1]) < 0.02


def test_the_longest_and_the_shortest_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of words 0 and 2^53 - 1, and at right angles."""
    last, right = 2.0**53 - 1, 2.0**51
    words = torch.tensor([[0.0, last, 0.0]]).double(), torch.tensor([[0.0, 0.0, right]]).double()
    monkeypatch.setattr(philox, "pairs", lambda *_: words)
    longest = math.sqrt(2 * 53 * math.log(2))
    found = philox.normals(["a"], "x", 1, 6, CPU)[0].tolist()
    assert found == pytest.approx([longest, 0, 0, 0, 0, longest], abs=1e-12)


def test_they_are_made_of_fine_uniform_numbers() -> None:
    drawn = torch.cat(philox.pairs(["a"], "noise", 1, 50_002, CPU), dim=1)[0] * 2.0**-53
    assert 0 <= float(drawn.min()) < float(drawn.max()) < 1
    assert scipy.stats.kstest(drawn.numpy(), "uniform").pvalue > 1e-4
    assert len(drawn.unique()) == 50_002  # 32 bits would repeat some
    assert (drawn * 2**53 % 2).unique().tolist() == [0, 1]


def test_each_run_purpose_and_step_has_its_own_numbers() -> None:
    drawn = torch.cat(
        [
            philox.normals(["a", "b"], purpose, step, 2000, CPU)
            for purpose in ("x", "y")
            for step in (1, 2)
        ]
    )
    assert (torch.corrcoef(drawn) - torch.eye(8)).abs().max() < 0.12  # 5 deviations


def test_names_that_differ_in_one_character_have_other_numbers() -> None:
    """Wherever it stands, in the run's name or in what the numbers are for."""
    name = "0123456789abcdef" * 8
    others = [f"{name[:place]}_{name[place + 1 :]}" for place in range(len(name))]
    names = [name, *others, f"{name}/1", f"{name}/11", name.upper(), f" {name}"]
    of_runs = philox.normals(names, "noise", 1, 1, CPU)
    of_purposes = torch.cat([philox.normals(["run"], each, 1, 1, CPU) for each in names])
    assert len(of_runs.unique()) == len(of_purposes.unique()) == len(names)


def test_a_runs_numbers_do_not_depend_on_its_company() -> None:
    together = philox.normals(["a", "b", "c"], "x", 7, 11, CPU)
    assert torch.equal(together[1:2], philox.normals(["b"], "x", 7, 11, CPU))


def test_all_of_the_hash_counts(monkeypatch: pytest.MonkeyPatch) -> None:
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
def kernel(tmp_path_factory: pytest.TempPathFactory):
    """What CUDA is given to compile, by the host's compiler: words, int64 [n, 6], to [n, 2]."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler is here to read CUDA's kernel")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(philox.KERNEL + ENTRY)
    library = folder / "kernel.so"
    options = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library)]
    subprocess.run([compiler, *options, str(folder / "kernel.cpp")], check=True, timeout=120)
    entry = ctypes.CDLL(str(library)).of_all

    def found(words: torch.Tensor) -> torch.Tensor:
        numbers = torch.empty(len(words), 2, dtype=torch.int64)
        places = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (words, numbers))
        entry(ctypes.c_longlong(len(words)), *places)
        return numbers

    return found


ENTRY = """
extern "C" void of_all(long long count, const long long* words, long long* numbers) {
    for (; count--; words += 6, numbers += 2)
        whole_numbers<long long>(
            words[0], words[1], words[2], words[3], words[4], words[5], numbers[0], numbers[1]);
}
"""


def test_cudas_kernel_gives_the_same_integers(kernel) -> None:
    """Of 200,000 counters and keys, the smallest and the largest words among them."""
    torch.manual_seed(0)
    words = torch.randint(0, 2**32, (200_000, 6))
    ends = torch.cartesian_prod(*[torch.tensor([0, 2**32 - 1])] * 6)
    words = torch.cat([words, ends]).contiguous()
    expected = torch.stack(philox.integers(*words.T), dim=1)
    assert torch.equal(kernel(words), expected)


def test_cudas_kernel_is_one_that_torch_can_read() -> None:
    """One template, whose last function takes six numbers and gives two by reference."""
    parsed = _CodeParser(philox.KERNEL)
    assert parsed.function_name == "whole_numbers"
    assert parsed.template_params == "<typename T>"
    assert (
        re.findall(r"T(&?) \w+", parsed.function_params.partition(")")[0]) == [""] * 6 + ["&"] * 2
    )
