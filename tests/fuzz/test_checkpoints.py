"""A checkpoint that is damaged, forged or of another shape: set aside, and nothing in it run."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mutations import spoiled, spoiled_values

from oso_dp.training.checkpoint import (
    load_checkpoint,
    quarantine_if_corrupt,
    save_checkpoint,
)
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
def test_any_change_of_its_bytes(valid, place, data):
    """Refused, or read as it was: no number is another one."""
    path = place / "a.pt"
    path.write_bytes(data.draw(spoiled(valid)))
    content = read_or_refused(taken, path)
    if content is not None:
        assert torch.equal(content["state"].pop("parameters"), CONTENT["state"]["parameters"])
        assert content == {**CONTENT, "fingerprint": "f", "state": {"step": 5, "memory": {}}}


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


def test_nothing_in_it_is_run(tmp_path, monkeypatch):
    """Whoever writes a right checksum, too, gets no further."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pt"
    save_checkpoint(path, "f", {"state": Evil()})
    assert b"was-run" in path.read_bytes()
    assert taken(path) is None
    assert not (tmp_path / "was-run").exists()
    assert (tmp_path / "a.pt.damaged").exists()


class KilledError(Exception):
    pass


@pytest.fixture
def begun(arrays, make_task, make_run, tmp_path):
    """A job with what it kept at step 4 of 6."""

    def kill(step):
        if step == 5:
            raise KilledError

    job = make_task("online", steps=6), [make_run(c=0.1), make_run("b", 1, c=0.1)], arrays
    path = tmp_path / "state.pt"
    with pytest.raises(KilledError):
        train(*job, checkpoint=path, fingerprint="f", on_progress=kill)
    return job, load_checkpoint(path, "f")


@inputs(short=8, long=300)
@given(data=st.data())
def test_a_forged_state_of_the_right_job(begun, place, data):
    """Trained on to the end, or begun anew: no other error."""
    job, content = begun
    sums = {name: content[name] for name in ("state", "alive", "ledgers")}
    forged = data.draw(spoiled_values(sums))
    path = place / "state.pt"
    save_checkpoint(path, "f", {"outcomes": content["outcomes"], **forged})
    read_or_refused(lambda: train(*job, checkpoint=path, fingerprint="f"))
