"""A checkpoint that is damaged is set aside, and nothing in it is run."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mutations import spoiled

from oso_dp.errors import InterruptedByUser
from oso_dp.methods import method_names
from oso_dp.training.checkpoint import load_checkpoint, quarantine_if_corrupt, save_checkpoint
from oso_dp.training.loop import train

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


@pytest.mark.parametrize("name", method_names())
def test_train_method_checkpoints_resumed(
    name, arrays, make_task, make_run, tmp_path, caplog
) -> None:
    job = make_task(name, steps=2, evaluate_every=2), [make_run(c=0.1)], arrays
    kept = {"checkpoint": tmp_path / "state.pt", "fingerprint": "f"}
    steps: list[int] = []

    def leave(step: int) -> None:
        steps.append(step)
        raise InterruptedByUser

    for _ in range(2):
        with pytest.raises(InterruptedByUser):
            train(*job, **kept, on_progress=leave)
    train(*job, **kept, on_progress=steps.append)
    assert steps == [1, 2]
    assert not [m for m in caplog.messages if "damaged" in m]
