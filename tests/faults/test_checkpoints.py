"""A checkpoint that is damaged, forged or of another shape: refused by name, nothing in it run."""

import pickle
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mutations import spoiled, spoiled_values

from oso_dp.errors import OsoError
from oso_dp.training.checkpoint import load_checkpoint, save_checkpoint
from oso_dp.training.loop import train

from .rounds import inputs, read_or_refused

CONTENT = {
    "fingerprint": "f",
    "state": {"parameters": torch.arange(6.0).reshape(2, 3), "step": 5, "memory": {}},
    "ledgers": ["{}", "{}"],
    "alive": [0, 1],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def valid(place) -> bytes:
    save_checkpoint(place / "valid.pt", CONTENT)
    return (place / "valid.pt").read_bytes()


@inputs(short=60, long=6_000)
@given(data=st.data())
def test_any_change_of_its_bytes(valid, place, data):
    """Refused, or read as it was: no number is another one."""
    path = place / "a.pt"
    path.write_bytes(data.draw(spoiled(valid)))
    content = read_or_refused(load_checkpoint, path, "f")
    if content is not None:
        assert torch.equal(content["state"].pop("parameters"), CONTENT["state"]["parameters"])
        assert content == {**CONTENT, "state": {"step": 5, "memory": {}}}


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("was-run"),)


def archive(content: bytes) -> bytes:
    packed = BytesIO()
    torch.save({"fingerprint": "f"}, packed)
    with zipfile.ZipFile(packed) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    (name,) = [name for name in parts if name.endswith("/data.pkl")]
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as new:
        for other, part in (parts | {name: content}).items():
            new.writestr(other, part)
    return packed.getvalue()


@pytest.mark.parametrize("form", ["plain", "archive"])
def test_nothing_in_it_is_run(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"fingerprint": "f", "state": Evil()})
    path = tmp_path / "a.pt"
    path.write_bytes(content if form == "plain" else archive(content))
    with pytest.raises(OsoError, match=rf"^{path}: not a sound checkpoint .* remove it"):
        load_checkpoint(path, "f")
    assert not (tmp_path / "was-run").exists()


def test_a_compressed_one_is_refused_unread(valid, tmp_path):
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(1 << 24))
    with pytest.raises(OsoError, match="it is compressed"):
        load_checkpoint(path, "f")


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
    """Trained on to the end, or refused by the file's name: no other error."""
    job, content = begun
    sums = {name: content[name] for name in ("state", "alive", "ledgers")}
    forged = data.draw(spoiled_values(sums))
    path = place / "state.pt"
    torch.save({"fingerprint": "f", "outcomes": content["outcomes"], **forged}, path)
    read_or_refused(lambda: train(*job, checkpoint=path, fingerprint="f"))
