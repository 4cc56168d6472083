"""A checkpoint is taken whole, or set aside: never by half, and never another job's."""

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from oso_dp.checkpoint import (
    load_checkpoint,
    quarantine_if_corrupt,
    save_checkpoint,
)
from oso_dp.errors import InterruptedByUser, OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.training import loop
from oso_dp.training.loop import Training, study_training, train

NOT_SOUND = r"not a checkpoint of this version|checksum differs"
CONTENT = {"step": 7, "parameters": torch.arange(5000.0), "ledger": [[1.5, 3]]}


@pytest.fixture
def path(tmp_path) -> Path:
    save_checkpoint(tmp_path / "state.pt", "mine", CONTENT)
    return tmp_path / "state.pt"


def test_load_checkpoint_requires_same_fingerprint(path) -> None:
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
def test_quarantine_if_corrupt_invalid_file_renamed(name, path, caplog, monkeypatch) -> None:
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


def test_load_checkpoint_damaged_bytes_raise(path) -> None:
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


def test_quarantine_if_corrupt_keeps_sound_file(path) -> None:
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


def test_load_checkpoint_unreadable_path_raises(tmp_path) -> None:
    (tmp_path / "state.pt").mkdir()
    with pytest.raises(OsoError, match=r"state\.pt: cannot read checkpoint \(Is a directory\)"):
        load_checkpoint(tmp_path / "state.pt", "mine")


STEPS, RUNS = 3, 3
Content = dict[str, Any]


def fewer_steps(text: str) -> str:
    ledger = Ledger.from_json(text)
    queries, count = ledger.steps.pop()
    ledger.steps += [(queries, count - 1)] if count > 1 else []
    return ledger.to_json()


SPOILT: dict[str, Callable[[Content], Any]] = {
    "a ledger is missing": lambda c: c["ledgers"].pop(),
    "there are no ledgers": lambda c: c["ledgers"].clear(),
    "a ledger stands there twice": lambda c: c["ledgers"].append(c["ledgers"][0]),
    "the first ledger lacks a step": lambda c: c["ledgers"].insert(
        0, fewer_steps(c["ledgers"].pop(0))
    ),
    "the last ledger lacks a step": lambda c: c["ledgers"].append(fewer_steps(c["ledgers"].pop())),
    "runs are in another order": lambda c: c["alive"].reverse(),
    "a living run is missing": lambda c: c["alive"].pop(),
    "a run lives twice": lambda c: c["alive"].append(0),
    "nobody lives": lambda c: c["alive"].clear(),
    "outcomes are in another order": lambda c: c["outcomes"].reverse(),
    "an outcome is missing": lambda c: c["outcomes"].pop(),
    "a run has ended": lambda c: c["outcomes"][1].update(status="finished"),
    "it is a step further": lambda c: c["state"].update(step=STEPS + 1),
}


def everything(training: Training) -> Content:
    return copy.deepcopy(training.content())


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("method", ["online", "auto_dog"])
def test_restore_invalid_content_leaves_training_unchanged(
    method, how, arrays, make_task, make_run
) -> None:
    def begin() -> Training:
        runs = [make_run(f"run {number}") for number in range(RUNS)]
        return study_training(make_task(method, steps=9, evaluate_every=9), runs, arrays)

    before = begin()
    for _ in range(STEPS):
        before.take_step()
    content, training, untouched = everything(before), begin(), begin()
    SPOILT[how](content)
    with pytest.raises(ValueError, match=r"\w"):
        training.restore(content)
    one, other = everything(training), everything(untouched)
    assert repr(one) == repr(other)
    assert training.mechanism.run_ids == untouched.mechanism.run_ids
    for each in (training, untouched):  # and it begins anew as if there had been no checkpoint
        each.take_step()
    assert torch.equal(training.state.parameters, untouched.state.parameters)
    assert [ledger.step_count for ledger in training.mechanism.ledgers] == [1] * RUNS


@pytest.mark.parametrize("name", ["online", "adam_wosm"])
def test_train_interrupted_every_step_matches_uninterrupted(
    name, arrays, make_task, make_run, tmp_path
) -> None:
    """A checkpoint keeps the whole state between two steps, and no step is repeated."""
    task, starts = make_task(name), [make_run("a"), make_run("b", 1)]
    whole = train(task, starts, arrays)
    steps: list[int] = []

    def interrupt(step: int) -> None:
        steps.append(step)
        raise InterruptedByUser

    kept = {"checkpoint": tmp_path / "state.pt", "fingerprint": "f", "on_progress": interrupt}
    for _ in range(task.steps):
        with pytest.raises(InterruptedByUser):
            train(task, starts, arrays, **kept)
    assert steps == list(range(1, task.steps + 1))
    resumed = train(task, starts, arrays, checkpoint=tmp_path / "state.pt", fingerprint="f")
    for one, other in zip(whole, resumed, strict=True):
        assert one.evaluations == other.evaluations
        assert one.ledger == other.ledger


@pytest.mark.parametrize("interrupted", [(), (1, 2, 11)])
def test_train_wall_seconds_exclude_interruptions(
    interrupted, arrays, make_task, make_run, tmp_path
) -> None:
    """Two runs share one second per step; the time between calls does not count."""
    now = [0.0]
    task, starts = (
        make_task("online", steps=12, evaluate_every=4),
        [make_run("a"), make_run("b", 1)],
    )
    kept = {"checkpoint": tmp_path / "state.pt", "fingerprint": "f", "clock": lambda: now[0]}

    def progress(step: int) -> None:
        now[0] += 1.0
        if step in left:
            left.remove(step)
            raise InterruptedByUser

    left = list(interrupted)
    for _ in interrupted:
        with pytest.raises(InterruptedByUser):
            train(task, starts, arrays, on_progress=progress, **kept)
        now[0] += 1000.0
    outcomes = train(task, starts, arrays, on_progress=progress, **kept)
    assert [one.wall_seconds for one in outcomes] == [pytest.approx(6.0)] * 2


def test_train_checkpoint_time_fraction_respected(
    arrays, make_task, make_run, tmp_path, monkeypatch
) -> None:
    """After a save of 1 s, the next one waits for 100 s, except at an interruption."""
    now = [0.0]
    steps: list[int] = []

    def save(path, fingerprint, content) -> None:
        now[0] += 1.0
        steps.append(content["state"]["step"])

    def step(number: int) -> None:
        now[0] += 10.0
        if number == 30:
            raise InterruptedByUser

    monkeypatch.setattr(loop, "CHECKPOINT_TIME_FRACTION", 0.01)
    monkeypatch.setattr(loop, "save_checkpoint", save)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    task, kept = make_task("online", steps=40), {"checkpoint": tmp_path / "x", "fingerprint": "f"}
    with pytest.raises(InterruptedByUser):
        train(task, [make_run()], arrays, on_progress=step, **kept)
    assert steps == [4, 16, 28, 30]
