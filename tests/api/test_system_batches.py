"""Under `randomness: system` each word that decides on a batch comes from the system, fresh."""

import os

import numpy as np
import pytest
import torch

from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.rng_sources import get_source
from oso_dp.privacy.sampling import PoissonSampling

REAL = os.urandom


class Recorded:
    """The system's bytes as they are handed out."""

    def __init__(self) -> None:
        self.given, self.again = b"", 0

    def record(self, count: int) -> bytes:
        made = REAL(count)
        self.given += made
        return made

    def repeat(self, count: int) -> np.ndarray:
        """The same bytes once more, as 64-bit words; fails where there were not as many."""
        part = self.given[self.again : self.again + 8 * count]
        self.again += 8 * count
        assert len(part) == 8 * count
        return np.frombuffer(part, "<u8")


@pytest.fixture
def recorded(monkeypatch) -> Recorded:
    made = Recorded()
    monkeypatch.setattr(os, "urandom", made.record)
    return made


@pytest.mark.parametrize("purpose", ["sampling", "draws", "score"])
@pytest.mark.parametrize("count", [1, 3, 5000])
def test_words_are_the_systems_bytes(recorded, purpose: str, count: int) -> None:
    words = get_source("system").words("run", purpose, 1)
    for _ in range(2):
        assert words(count).tolist() == recorded.repeat(count).tolist()
    assert recorded.again == len(recorded.given)


@pytest.mark.parametrize(("examples", "size"), [(40, 10), (1000, 500), (60_000, 512)])
def test_batches_follow_from_systems_bytes(recorded, examples: int, size: int) -> None:
    """And from nothing else: a seed of a few bytes would not do for them."""
    sampling = PoissonSampling.of(size, examples)
    numbers = BatchRNG(get_source("system"), sampling, examples, torch.device("cpu"))
    for step in (1, 2):
        for row, own in zip(*numbers.batches(["a", "b"], step), strict=True):
            assert row[own].tolist() == sampling.draw(examples, recorded.repeat).tolist()
    assert recorded.again == len(recorded.given)
