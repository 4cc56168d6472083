"""A run's name counts in every letter, of whatever script and however long: equal streams cancel.

Data sets and methods of somebody's own bring names of their own.
"""

import pytest
import torch

from oso_dp.privacy import philox, rng_sources

LETTERS = [chr(number) for number in (*range(1, 0xD800, 3), *range(0xE000, 0x1FFFF, 7))]
NAMES = {
    "letters": [f"run {letter}" for letter in LETTERS],
    "lengths": [f"{'x' * length}{end}" for length in range(1, 2000, 3) for end in "ab"],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_no_two_names_have_a_stream_of_the_host_in_common(names: list[str]) -> None:
    for parts in ([(name, "noise") for name in names], [("run", name) for name in names]):
        assert len({rng_sources.StreamKey(*part, 1, 0).digest for part in parts}) == len(names)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_nor_one_of_an_accelerator(names: list[str]) -> None:
    drawn = philox.normals(names, "noise", 1, 1, torch.device("cpu"))
    assert len(drawn.unique()) == len(names)
    some = names[:: len(names) // 200]
    purposes = [philox.normals(["run"], name, 1, 1, torch.device("cpu")) for name in some]
    assert len(torch.cat(purposes).unique()) == len(some)
