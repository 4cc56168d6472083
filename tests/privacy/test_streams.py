"""Streams: no two of them alike, none dependent on order."""

import os
import random

import numpy as np
import pytest
import scipy.stats
import torch

from oso.errors import OsoError
from oso.privacy.streams import Seeded, SystemEntropy, source, stream


def test_a_stream_is_reproducible() -> None:
    first, again = (stream("run", "sampling", 7).random(5) for _ in range(2))
    assert np.array_equal(first, again)


def test_run_purpose_and_step_each_change_the_stream() -> None:
    draws = [
        tuple(stream(run, purpose, step).random(2))
        for run in ("a", "b")
        for purpose in ("sampling", "noise/clipped_gradient", "noise/clipped_direction")
        for step in (1, 2, 3)
    ]
    assert len(set(draws)) == len(draws)


def test_identity_and_purpose_do_not_run_into_each_other() -> None:
    assert stream("run", "1noise", 1).random() != stream("run1", "noise", 1).random()


def test_steps_do_not_overlap_however_much_is_drawn() -> None:
    """A counter that held the step in its lowest word would repeat step 1's draws, shifted."""
    first = stream("run", "noise", 1).random(4096)
    second = stream("run", "noise", 2).random(4096)
    assert not set(first) & set(second)


def test_the_key_is_wide() -> None:
    """32 bits of seed would collide here: 2^32 keys, 200,000 streams, about 4.7 pairs expected."""
    keys = {stream(f"run {i}", "noise", 1).bit_generator.random_raw() for i in range(200_000)}
    assert len(keys) == 200_000


class TestSystemEntropy:
    """Fresh at every call, and of the stated distributions."""

    def test_uniforms(self) -> None:
        draws = SystemEntropy().uniforms("run", "sampling", 1, (50_000,))
        assert scipy.stats.kstest(draws, "uniform").pvalue > 1e-6
        assert draws.min() >= 0
        assert draws.max() < 1

    def test_normals(self) -> None:
        draws = SystemEntropy().normals("run", "noise", 1, (50_000, 2))
        assert draws.shape == (50_000, 2)
        assert scipy.stats.kstest(draws.ravel(), "norm").pvalue > 1e-6
        assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03

    def test_the_same_question_gets_another_answer(self) -> None:
        system = SystemEntropy()
        for ask in (system.uniforms, system.normals):
            assert not set(ask("a", "b", 1, (100,))) & set(ask("a", "b", 1, (100,)))

    def test_no_seed_reaches_it(self) -> None:
        draws = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            torch.manual_seed(1)
            draws.append(SystemEntropy().normals("run", "noise", 1, (4,)))
        assert not set(draws[0]) & set(draws[1])

    def test_the_tails_have_no_gaps(self, monkeypatch) -> None:
        """Far out, one word leaves values so far apart that a sum shows which was possible."""
        words = np.concatenate(
            [np.full(1000, 1 << 12, "<u8"), np.arange(1000, dtype="<u8") << np.uint64(52)]
        )
        halves = [words[:1000].tobytes(), words[1000:].tobytes()]
        monkeypatch.setattr(os, "urandom", lambda count: halves.pop(0))
        draws = SystemEntropy().normals("run", "noise", 1, (1000,))
        assert (draws < -7.9).all()
        assert len(np.unique(draws.astype(np.float32))) > 100

    def test_a_scalar_has_one_number(self) -> None:
        assert SystemEntropy().normals("run", "noise", 1, ()).shape == ()

    def test_the_extremes_are_finite(self, monkeypatch) -> None:
        for byte in (b"\x00", b"\xff"):
            monkeypatch.setattr(os, "urandom", lambda count, byte=byte: byte * count)
            assert np.isfinite(SystemEntropy().normals("run", "noise", 1, (3,))).all()


def test_an_unknown_source_is_refused() -> None:
    assert isinstance(source("seeded"), Seeded)
    assert isinstance(source("system"), SystemEntropy)
    with pytest.raises(OsoError, match="randomness 'dice': not known; allowed are seeded, system"):
        source("dice")
