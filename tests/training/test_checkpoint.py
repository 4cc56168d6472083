"""A checkpoint is taken whole, or set aside: never by half, and never another job's."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from oso_dp.errors import OsoError
from oso_dp.training.checkpoint import (
    load_checkpoint,
    quarantine_if_corrupt,
    save_checkpoint,
)

NOT_SOUND = r"not a checkpoint of this version|checksum differs"
CONTENT = {"step": 7, "parameters": torch.arange(5000.0), "ledger": [[1.5, 3]]}


@pytest.fixture
def path(tmp_path) -> Path:
    save_checkpoint(tmp_path / "state.pt", "mine", CONTENT)
    return tmp_path / "state.pt"


def test_what_was_saved_is_loaded_by_its_own_job_only(path) -> None:
    content = load_checkpoint(path, "mine")
    assert content.keys() == {"fingerprint", *CONTENT}
    assert torch.equal(content["parameters"], CONTENT["parameters"])
    assert (content["step"], content["ledger"]) == (7, [[1.5, 3]])
    assert load_checkpoint(path, "another") is None
    assert path.exists()  # that job may still come
    assert load_checkpoint(path.with_name("none.pt"), "mine") is None


def damages() -> dict[str, bytes]:
    """By what they would be taken for."""

    class Evil:
        def __reduce__(self):
            return os.mkdir, ("taken",)

    return {
        "empty": b"",
        "a text": b"hello\n",
        "its mark alone": b"oso checkpoint 1",
        "a foreign pickle": pickle.dumps(Evil()),
        "a foreign pickle behind the mark": b"oso checkpoint 1" + bytes(32) + pickle.dumps(Evil()),
    }


@pytest.mark.parametrize("name", damages())
def test_what_is_no_checkpoint_is_set_aside_with_a_line(name, path, caplog, monkeypatch) -> None:
    monkeypatch.chdir(path.parent)
    damage = damages()[name]
    path.write_bytes(damage)
    with quarantine_if_corrupt(path):
        load_checkpoint(path, "mine")
    assert not path.exists()
    assert path.with_name("state.pt.damaged").read_bytes() == damage
    assert not Path("taken").exists()
    (line,) = caplog.messages
    assert line.startswith(f"{path}: damaged")
    assert "\n" not in line


def test_a_bit_that_flipped_anywhere_is_seen(path) -> None:
    sound = path.read_bytes()
    for at in range(0, len(sound), max(1, len(sound) // 199)):
        spoiled = bytearray(sound)
        spoiled[at] ^= 1 << (at % 8)
        path.write_bytes(spoiled)
        with pytest.raises(ValueError, match=NOT_SOUND):
            load_checkpoint(path, "mine")
    for length in range(0, len(sound), max(1, len(sound) // 50)):
        path.write_bytes(sound[:length])
        with pytest.raises(ValueError, match=NOT_SOUND):
            load_checkpoint(path, "mine")
    path.write_bytes(sound)
    assert load_checkpoint(path, "mine") is not None


def test_what_is_not_the_files_fault_leaves_it(path) -> None:
    for error in (
        MemoryError(),
        torch.OutOfMemoryError(),
        OSError(28, "full"),
        KeyboardInterrupt(),
    ):
        wrong = OsoError("x") if isinstance(error, OSError) else error
        with pytest.raises(type(wrong)), quarantine_if_corrupt(path):
            raise wrong
        assert path.exists()


def test_one_that_cannot_be_read_is_named(tmp_path) -> None:
    (tmp_path / "state.pt").mkdir()
    with pytest.raises(OsoError, match=r"state\.pt: cannot read checkpoint \(Is a directory\)"):
        load_checkpoint(tmp_path / "state.pt", "mine")
