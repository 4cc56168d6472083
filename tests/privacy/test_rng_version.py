"""The numbers that each scheme of `STREAMS` gives: whoever changes them changes its number, too.

Results record the number, so that a reader knows which rows can be repeated with this code.
"""

import hashlib

import numpy as np
import pytest
import torch
from tests.privacy.helpers import always_empty, seeded_normals

from oso_dp.privacy import philox, rng_sources
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import ClippedGradient
from oso_dp.privacy.rng_sources import RNG_VERSION, Seeded, init_generator
from oso_dp.privacy.sampling import PoissonSampling

CPU = torch.device("cpu")
BLOCK = {2: 2**14}
HASH = {2: "7d99435279dc2b46"}  # of batches of several sizes and rates
BATCH = {2: ([410, 924, 1238, 1339], [59817, 59966], 511)}
NORMALS = {
    2: [
        0.609261458979292,
        -0.34312671460939304,
        -0.7664299666994953,
        0.034792699071586934,
        -1.2433045074463915,
    ]
}
ACCELERATOR = {2: [[3785403123831278, 2870481929235016], [5407483093300146, 110427104769421]]}
ANSWER = {2: [-1.6368041, -0.6705779, -1.0927323]}


def test_rng_version_has_golden_values() -> None:
    assert RNG_VERSION in HASH
    assert BLOCK[RNG_VERSION] == rng_sources.BLOCK


def test_batch_rng_batches_match_golden() -> None:
    batch = PoissonSampling(512 / 60_000).draw(60_000, Seeded().words("run", "sampling", 3000))
    first, last, size = BATCH[RNG_VERSION]
    assert (batch[:4].tolist(), batch[-2:].tolist(), len(batch)) == (first, last, size)
    digest = hashlib.sha256()
    for examples, rate in ((3, 0.5), (1000, 0.1), (1000, 0.8), (2**16 + 1, 0.01), (10**6, 1e-4)):
        draws = BatchRNG(Seeded(), PoissonSampling(rate), examples, CPU)
        for step in (1, 2, 3000):
            indices, present = draws.batches(["a", "b"], step)
            for row, own in zip(indices.numpy(), present.numpy(), strict=True):
                digest.update(len(row[own]).to_bytes(8) + row[own].astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == HASH[RNG_VERSION]


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_rng_noise_matches_golden(threads: int) -> None:
    """The golden values are the numbers at the ends of the first block and of the vector."""
    drawn = seeded_normals(["other", "run"], "noise/clipped_gradient/1", 3000, (40_000,), threads)
    assert drawn[1, [0, 1, 16383, 16384, 39999]].tolist() == NORMALS[RNG_VERSION]


def test_mechanism_answer_matches_golden() -> None:
    """The name under which the mechanism asks for noise is part of the scheme."""

    class Nothing:
        def norms(self) -> torch.Tensor:
            return torch.zeros(1, 0)

        def weighted_sums(self, weights: torch.Tensor, layers: None = None) -> torch.Tensor:
            return torch.zeros(1, 1, 3)

    mechanism = always_empty(Mechanism(["run"], records=100, batch_size=1))
    query = ClippedGradient(1.5, torch.ones(1))
    answers = mechanism.release(slice(0, 1), 7, [query], lambda *_: Nothing())
    assert answers[ClippedGradient][0].tolist() == pytest.approx(ANSWER[RNG_VERSION], rel=1e-6)


def test_philox_noise_matches_golden() -> None:
    """Only the integers are golden, since logarithms may differ between devices."""
    pairs = philox.pairs(["run"], "noise", 3000, 4, CPU)
    assert [each[0].to(torch.int64).tolist() for each in pairs] == ACCELERATOR[RNG_VERSION]
    drawn = philox.normals(["run"], "noise", 3000, 4, CPU)[0]
    first, second = (np.array(each) * 2.0**-53 for each in ACCELERATOR[RNG_VERSION])
    radius, angle = np.sqrt(-2 * np.log(first + 2.0**-53)), 2 * np.pi * second
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    np.testing.assert_allclose(drawn.numpy(), expected, rtol=1e-12)


def test_init_generator_matches_golden() -> None:
    """All RNG versions start a seed from the same weights."""
    assert int(init_generator("seed 1", "weights of cnn", 0).integers(2**32)) == 3831738972
