"""Streams: no two of them alike, none dependent on order."""

import numpy as np

from oso.privacy.streams import stream


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


def test_steps_do_not_overlap_however_much_is_drawn() -> None:
    """A counter that held the step in its lowest word would repeat step 1's draws, shifted."""
    first = stream("run", "noise", 1).random(4096)
    second = stream("run", "noise", 2).random(4096)
    assert not set(first) & set(second)


def test_the_key_is_wide() -> None:
    """32 bits of seed would collide here: 2^32 keys, 200,000 streams, about 4.7 pairs expected."""
    keys = {stream(f"run {i}", "noise", 1).bit_generator.random_raw() for i in range(200_000)}
    assert len(keys) == 200_000
