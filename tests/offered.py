"""A data set of a user's own, really installed: a module and its entry point on the path."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from oso_dp.accounting.search import Search
from oso_dp.data.plugins import find_plugin

SOURCE = """\
import numpy as np
from torch import nn

import oso_dp

rng = np.random.default_rng(0)
x = rng.normal(size=(80, 4)).astype(np.float32)
y = (x.sum(axis=1) > 0).astype(np.int64)


def arrays(train=60, x=x, y=y):
    return oso_dp.Arrays(x[:train], y[:train], x[train:], y[train:])


data_set = oso_dp.UserDataset(**(dict(
    load=arrays,
    model=lambda: nn.Linear(4, 2),
    version="1",
    examples=60,
    test_examples=20,
    input_shape=(4,),
) | dict({changes})))
"""

Offer = Callable[..., Path]

# One search costs seconds, and has one answer; its tests plan it again and again.
_priced = cache(Search.noise_multiplier)


@pytest.fixture
def offer(tmp_path_factory, monkeypatch) -> Iterator[Offer]:
    """Call it with what differs from `SOURCE`, as source text; a second call replaces the first.

    name: of the entry point. Returns the folder that is on the path.
    """
    before = list(sys.path)
    monkeypatch.setattr(Search, "noise_multiplier", lambda *asked: _priced(*asked))

    def make(name: str = "patients", source: str = SOURCE, **changes: str) -> Path:
        folder: Path = tmp_path_factory.mktemp("offered")
        module = f"offered_{uuid4().hex}"
        given = ", ".join(f"{key}={value}" for key, value in changes.items())
        (folder / f"{module}.py").write_text(source.replace("{changes}", given))
        known = folder / f"{module}-1.dist-info"
        known.mkdir()
        (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (known / "entry_points.txt").write_text(f"[oso_dp.data]\n{name} = {module}:data_set\n")
        monkeypatch.setattr(sys, "path", [str(folder), *before])
        find_plugin.cache_clear()
        return folder

    yield make
    find_plugin.cache_clear()
