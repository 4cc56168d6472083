"""Batches of several runs: padded to the longest, on the host and on an accelerator's path."""

import threading

import pytest
import torch
from tests.privacy.helpers import batch_of, normals_of
from torch import Tensor

from oso_dp.privacy import philox
from oso_dp.privacy.batch_rng import BLOCK, NOISE_BLOCK, BatchRNG, NoiseSpec
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling

RUNS = ["a", "b", "c"]


@pytest.fixture(params=["host", "there"])
def draws(request) -> BatchRNG:
    draws = BatchRNG(Seeded(), PoissonSampling(0.1), 1000, torch.device("cpu"))
    draws._on_device = request.param == "there"  # the tensor code runs on any device
    return draws


@pytest.mark.parametrize("step", [1, 2])
def test_batches_are_the_same_on_any_device(step: int) -> None:
    """They are drawn on the host, so that a run has the same ones wherever it trains."""
    host, there = (
        BatchRNG(Seeded(), PoissonSampling(0.1), 1000, torch.device("cpu")) for _ in "ab"
    )
    there._on_device = True
    for a, b in zip(host.batches(RUNS, step), there.batches(RUNS, step), strict=True):
        assert torch.equal(a, b)


def test_batches_together_are_each_runs_own(draws: BatchRNG) -> None:
    indices, present = draws.batches(RUNS, 3)
    for run, run_id in enumerate(RUNS):
        assert torch.equal(indices[run][present[run]], batch_of(draws, run_id, 3))
    assert not indices[~present].any()
    assert indices.shape[1] % BLOCK == 0


def test_nobody_is_left_out_of_a_long_batch(draws: BatchRNG) -> None:
    """Truncated batches would not be Poisson's: a new example could push another one out."""
    draws.sampling = PoissonSampling(1.0)
    indices, present = draws.batches(RUNS, 1)
    for run in range(3):
        assert indices[run][present[run]].tolist() == list(range(1000))


def test_batches_are_poisson(draws: BatchRNG) -> None:
    sizes = torch.cat([draws.batches(RUNS, step)[1].sum(dim=1) for step in range(1, 301)]).double()
    assert sizes.mean().item() == pytest.approx(100, abs=2)
    assert sizes.std().item() == pytest.approx(90**0.5, rel=0.12)


def test_empty_batches(draws: BatchRNG) -> None:
    draws.sampling = PoissonSampling(1e-12)
    indices, present = draws.batches(RUNS, 1)
    assert indices.shape == present.shape == (3, 0)


def test_a_batch_is_as_long_in_company_as_alone(draws: BatchRNG) -> None:
    """Also an empty one beside others: what pads it is nobody's."""
    draws.sampling = PoissonSampling(1e-3)  # of 1,000 examples: about a third are empty
    names = [f"run {i}" for i in range(40)]
    present = draws.batches(names, 1)[1].sum(dim=1).tolist()
    assert present == [len(batch_of(draws, name, 1)) for name in names]
    assert 0 in present
    assert max(present) > 1


def test_noise_together_is_each_runs_own(draws: BatchRNG) -> None:
    together = normals_of(draws, RUNS, "noise", 5, 4, 3)
    assert together.shape == (3, 4, 3)
    assert torch.equal(together[1], normals_of(draws, ["b"], "noise", 5, 4, 3)[0])
    assert normals_of(draws, RUNS, "noise", 5).shape == (3,)


def deviates(draws: BatchRNG, run_id: str, purpose: str, step: int, size: int) -> Tensor:
    """The stream's own numbers, float64 [size]."""
    if draws._on_device:
        return philox.normals([run_id], purpose, step, size, draws.device)[0]
    return torch.from_numpy(draws.randomness.normals([run_id], purpose, step, (size,))[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_each_sum_of_each_run_gets_its_own_noise(draws, dtype, threads, monkeypatch) -> None:
    """Of a step with three sums: each from its stream, at its deviation, rounded once."""
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


def test_threads_that_draw_at_the_same_time_have_numbers_of_their_own(monkeypatch) -> None:
    """Each has drawn before either adds what it drew."""
    both = threading.Barrier(2, timeout=20)

    class Waiting(Seeded):
        def fill(self, *arguments) -> None:
            super().fill(*arguments)
            both.wait()

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    draws = BatchRNG(Waiting(), PoissonSampling(0.1), 1000, torch.device("cpu"))
    size = 2 * NOISE_BLOCK
    expected = Seeded().normals(["a"], "noise", 1, (size,))
    assert torch.equal(normals_of(draws, ["a"], "noise", 1, size), torch.from_numpy(expected))


def test_only_seeded_streams_are_drawn_elsewhere() -> None:
    """What protects data comes from the operating system in any case."""
    accelerator = torch.device("meta")
    assert BatchRNG(Seeded(), PoissonSampling(0.1), 10, accelerator)._on_device
    assert not BatchRNG(SystemEntropy(), PoissonSampling(0.1), 10, accelerator)._on_device
