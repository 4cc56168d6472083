"""A checkpoint that is damaged is set aside, and nothing in it is run."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mutations import spoiled

from oso_dp.checkpoint import load_checkpoint, quarantine_if_corrupt, save_checkpoint

from .rounds import inputs, read_or_refused

CONTENT = {
    "state": {"parameters": torch.arange(6.0).reshape(2, 3), "step": 5, "memory": {}},
    "ledgers": ["{}", "{}"],
    "alive": [0, 1],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def valid(place) -> bytes:
    save_checkpoint(place / "valid.pt", "f", CONTENT)
    return (place / "valid.pt").read_bytes()


def taken(path):
    """What a job goes on from; None where it begins anew."""
    with quarantine_if_corrupt(path):
        return load_checkpoint(path, "f")
    return None


@inputs(short=60, long=6_000)
@given(data=st.data())
def test_load_checkpoint_changed_bytes_not_misread(valid, place, data):
    path = place / "a.pt"
    path.write_bytes(data.draw(spoiled(valid)))
    content = read_or_refused(taken, path)
    if content is not None:
        assert torch.equal(content["state"].pop("parameters"), CONTENT["state"]["parameters"])
        assert content == {**CONTENT, "fingerprint": "f", "state": {"step": 5, "memory": {}}}


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


def test_load_checkpoint_pickled_code_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pt"
    save_checkpoint(path, "f", {"state": Evil()})
    assert b"was-run" in path.read_bytes()
    assert taken(path) is None
    assert not (tmp_path / "was-run").exists()
    assert (tmp_path / "a.pt.damaged").exists()
