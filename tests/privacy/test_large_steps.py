"""No stream begins again: not late in a run, and not far into a large network's sum."""

import numpy as np
import pytest
import torch
from tests.privacy.helpers import Given, always_empty
from tests.privacy.test_long_streams import STEPS

from oso_dp.privacy import philox
from oso_dp.privacy.batch_rng import NOISE_BLOCK, BatchRNG, NoiseSpec
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.sampling import uniform_below
from oso_dp.privacy.queries import ClippedDirection, ClippedGradient, Runs
from oso_dp.privacy.rng_sources import Seeded, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling

CPU = torch.device("cpu")
SOURCES = [Seeded, SystemEntropy]


class Numbered(Seeded):
    """Instead of noise, each number tells the block that it was asked for as."""

    def fill(self, numbers: np.ndarray, run_id: str, purpose: str, step: int, block: int) -> None:
        numbers[:] = block


def test_each_block_of_a_long_sum_has_noise_of_its_own() -> None:
    """Of a network of five million parameters on the host."""
    size = 300 * NOISE_BLOCK + 5
    draws = BatchRNG(Numbered(), PoissonSampling(0.5), 10, CPU)
    noise = NoiseSpec("noise/x", torch.ones(1))
    (noised,) = draws.add_noise(["a"], 7, [torch.zeros(1, size)], [noise])
    assert torch.equal(noised[0].long(), torch.arange(size) // NOISE_BLOCK)


@pytest.mark.parametrize("size", [2**14, 8 * 2**17 - 3])
def test_no_number_of_a_block_comes_twice(size: int, monkeypatch) -> None:
    """Of a network of two billion parameters, whose blocks are made smaller here: 2^17 of them."""
    monkeypatch.setattr("oso_dp.privacy.rng_sources.BLOCK", 8)
    draws = BatchRNG(Numbered(), PoissonSampling(0.5), 10, CPU)
    noise = NoiseSpec("noise/x", torch.ones(1))
    (noised,) = draws.add_noise(["a"], 7, [torch.zeros(1, size)], [noise])
    assert torch.equal(noised[0].long(), torch.arange(size) // 8)


def test_each_pair_of_a_long_sum_on_an_accelerator_has_a_place_of_its_own(monkeypatch) -> None:
    """Of 33 million parameters, beyond what a float32 counts to."""
    counters = []

    def noting(c0, c1, *others):
        counters.append(c0)
        return c0, c0

    monkeypatch.setattr(philox, "integers", noting)
    first, _ = philox.pairs(["a"], "noise/x", 7, 2**25 + 7, CPU)
    assert torch.equal(counters[0][0], torch.arange(2**24 + 4))
    assert first.shape == (1, 2**24 + 4)


def released(mechanism: Mechanism, step: int, taken: list) -> tuple[float, float]:
    """A gradient's and a direction's noise; notes the batch that both were taken over."""

    def gradients(runs: Runs, batch: torch.Tensor) -> Given:
        taken.append((step, tuple(batch[0].tolist())))
        return Given(torch.zeros(*batch.shape, 1))

    one = torch.ones(1)
    asked = [ClippedGradient(1.0, one), ClippedDirection(2.0, one)]
    sums = mechanism.release(slice(0, 1), step, asked, gradients)
    return float(sums[ClippedGradient][0, 0]), float(sums[ClippedDirection][0, 0])


@pytest.mark.parametrize("source", SOURCES)
def test_a_mechanisms_late_steps_have_batches_and_noise_of_their_own(source) -> None:
    mechanism = Mechanism(["a"], 200, 100, randomness=source())
    taken: list = []
    steps = sorted({*STEPS})
    noise = [released(mechanism, step, taken) for step in steps]
    assert len({number for pair in noise for number in pair}) == 2 * len(steps)
    assert len({batch for _, batch in taken}) == len(taken) == len(steps)


@pytest.mark.parametrize(("late", "again"), [(4097, 4097), (5000, 4500), (2**20, 4097), (3, 2)])
def test_a_late_step_is_released_once(late: int, again: int) -> None:
    mechanism = Mechanism(["a"], 200, 100)
    released(mechanism, late, [])
    with pytest.raises(ValueError, match=f"step: {again}; was released before"):
        released(mechanism, again, [])
    released(mechanism, late + 1, [])


def test_sums_of_nobody_have_their_noise() -> None:
    """Exact zeros would tell that the batch was empty."""
    mechanism = always_empty(Mechanism(["a"], 200, 100))
    noise = torch.tensor([released(mechanism, step, []) for step in range(1, 501)])
    deviations = (100 * noise).std(dim=0).tolist()  # of sums over an expected batch of 100
    assert deviations == pytest.approx([1.0, 2.0], rel=0.15)


@pytest.mark.parametrize("bits", [24, 26, 33])
def test_examples_beyond_what_a_float32_counts_to_are_drawn_alike(bits: int) -> None:
    drawn = uniform_below(2**bits, 40_000, Seeded().words("a", "sampling", 7))
    low = drawn[:, None] >> np.arange(bits) & 1
    assert np.abs(low.mean(axis=0) - 0.5).max() < 0.02  # 8 deviations
