"""Callbacks, checkpoints and signals: what a cluster or a person does to a training."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from oso_dp import OsoError

SEEDED = {"randomness": "seeded", "seed": 1}


class KilledError(Exception):
    """In place of a kill."""


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.02)


def kill_at(step: int):
    def callback(evaluation) -> None:
        if evaluation.step == step:
            raise KilledError

    return callback


@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": adamw, "schedule": "cosine", "warmup": 0.3},
        {"method": "auto_dog"},
        {"method": "fixed_quantile", "quantile": 0.5, "averaging": 0.9, "batch_size": 33},
    ],
)
def test_checkpoint_killed_training_resumes_identically(options, every, train, tmp_path) -> None:
    """With seeded noise, a training killed at or between checkpoints resumes bit for bit."""
    common = {**SEEDED, **options, "evaluate": lambda model: next(model.parameters()).sum().item()}
    whole = train(**common, evaluate_every=2)
    steps, path = whole.ledger.step_count, tmp_path / "state"
    for stop in (1, 2, 3, 5, steps - 1):
        with pytest.raises(KilledError):
            train(
                **common, evaluate_every=1, checkpoint=path, checkpoint_every=every,
                callbacks=[kill_at(stop)],
            )  # fmt: skip
    resumed = train(**common, evaluate_every=1, checkpoint=path, checkpoint_every=every)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert resumed.ledger == whole.ledger
    assert str(resumed.statement) == str(whole.statement)
    assert resumed.history.threshold == pytest.approx(whole.history.threshold, nan_ok=True)
    assert resumed.history.step == whole.history.step
    assert resumed.history.score_step == list(range(1, steps + 1))
    scores = dict(zip(resumed.history.score_step, resumed.history.score, strict=True))
    assert [scores[step] for step in whole.history.score_step] == whole.history.score
    # The same call once more trains nothing.
    told = []
    again = train(**common, evaluate_every=1, checkpoint=path, callbacks=[told.append])
    assert [one.step for one in told] == [steps]
    assert (again.status, again.ledger) == ("finished", whole.ledger)
    assert torch.equal(next(again.model.parameters()), next(whole.model.parameters()))


def test_checkpoint_evaluated_step_not_repeated(train, tmp_path) -> None:
    """With the system's noise a step that is taken again is another release."""
    seen: dict[int, list[float]] = {}

    def callback(evaluation) -> None:
        weight = next(evaluation.make_model().parameters()).flatten()[0].item()
        seen.setdefault(evaluation.step, []).append(weight)
        if evaluation.step % 3 == 0 and len(seen[evaluation.step]) == 1:
            raise KilledError

    options = {"checkpoint": tmp_path / "state", "checkpoint_every": 100, "evaluate_every": 1}
    for _ in range(20):
        try:
            trained = train(**options, callbacks=[callback])
        except KilledError:
            continue
        break
    assert all(len(set(weights)) == 1 for weights in seen.values())
    assert len(seen) == trained.ledger.step_count


def test_checkpoint_diverged_training_not_repeated(train, tmp_path) -> None:
    options = {"method": "fixed_threshold", "threshold": 1e30, "learning_rate": 1e30}
    first, again = (train(**options, checkpoint=tmp_path / "state") for _ in "ab")
    assert first.status == again.status == "diverged"
    assert first.ledger == again.ledger


def test_callbacks_get_each_evaluation(train) -> None:
    told = []
    trained = train(
        callbacks=[told.append], evaluate_every=3, evaluate=lambda model: 0.25, epochs=1, **SEEDED
    )
    steps = trained.ledger.step_count
    assert [one.step for one in told] == [*range(3, steps, 3), steps]
    assert {(one.steps, one.score) for one in told} == {(steps, 0.25)}
    assert told[0].threshold == pytest.approx(trained.history.threshold[3])
    last = told[-1].make_model()
    for one, other in zip(last.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [one.score for one in _told(train)] == [None]


def _told(train) -> list:
    told: list = []
    train(callbacks=[told.append])
    return told


def test_callbacks_true_interrupts_training(train) -> None:
    """All planned steps are charged, since the callback's decision may depend on the data."""
    trained = train(callbacks=[lambda one: one.step >= 4], evaluate_every=2)
    assert (trained.status, trained.ledger.step_count) == ("interrupted", 4)
    assert trained.epsilon == pytest.approx(train().epsilon, rel=1e-6)


def test_checkpoint_ended_by_callback_not_continued(train, tmp_path) -> None:
    ended = {"callbacks": [lambda one: one.step >= 4], "evaluate_every": 2}
    for _ in range(3):
        trained = train(**ended, checkpoint=tmp_path / "state")
        assert (trained.status, trained.ledger.step_count) == ("interrupted", 4)


def test_checkpoint_failed_evaluation_keeps_history(train, tmp_path) -> None:
    """The history keeps each rate of AUTO-DoG, which is known only after the step's update."""
    options = {"method": "auto_dog", "evaluate_every": 2, **SEEDED}
    with pytest.raises(OSError, match="no space"):
        train(**options, checkpoint=tmp_path / "state", evaluate=_fail)
    resumed = train(**options, checkpoint=tmp_path / "state", evaluate=lambda model: 1.0)
    assert resumed.history.learning_rate == train(**options).history.learning_rate


def _fail(model: torch.nn.Module) -> float:
    raise OSError("no space left on device")


SCRIPT = """
import sys
import torch
from torch import nn
from oso_dp import train_private

random = torch.Generator().manual_seed(3)
inputs = torch.randn(400, 6, generator=random)
targets = (inputs.sum(dim=1) > 0).long()
torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
trained = train_private(
    model, nn.CrossEntropyLoss(reduction="none"), (inputs, targets), epsilon=3, delta=1e-5,
    epochs=20, batch_size=20, randomness="seeded", seed=1, checkpoint=sys.argv[1],
    checkpoint_every=10, progress=False,
)
flat = torch.cat([p.detach().flatten() for p in trained.model.parameters()])
print(trained.status, trained.ledger.step_count, flat.double().sum().item())
"""


def _run(path: Path, after: float | None = None) -> str:
    """after: seconds from the first checkpoint of this process to SIGTERM."""
    command = [sys.executable, "-c", SCRIPT, str(path)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=one_thread)
    before, deadline = _written(path), time.monotonic() + 60
    if after is not None:
        while _written(path) == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(after)
        process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    return out.strip()


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_checkpoint_sigterm_resumes_identically(times: int, tmp_path) -> None:
    whole = _run(tmp_path / "whole")
    assert whole.startswith("finished 400 ")
    rng, path, last, interrupted = random.Random(times), tmp_path / "state", 0, 0
    for _ in range(times):
        out = _run(path, rng.uniform(0, 0.1))
        if not out:  # after the training
            continue
        status, steps, _ = out.split()
        assert last <= int(steps)
        last = int(steps)
        interrupted += status == "interrupted"
        assert status == ("finished" if last == 400 else "interrupted")
        if status == "finished":
            path.unlink()
            last = 0
    assert interrupted > 0
    assert _run(path) == whole


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"epochs": 3}, "steps is 16; must be 24"),
        ({"batch_size": 100}, "batch_size is 50; must be 100"),
        ({"epsilon": 4.0}, "noise_multiplier is"),
        ({"delta": 1e-6}, "noise_multiplier is"),
        ({"method": "auto_s"}, "method is 'online'; must be 'auto_s'"),
        ({"learning_rate": 0.5}, "learning_rate is None; must be 0.5"),
        ({"momentum": 0.5}, "momentum is 0.9; must be 0.5"),
        ({"query_noise_ratio": 9.0}, "method_options is {}; must be {'query_noise_ratio': 9.0}"),
        ({"optimizer": adamw}, "optimizer is False; must be True"),
        ({"microbatch_size": 10}, "microbatch_size is None; must be 10"),
        ({"seed": 2}, "seed is 1; must be 2"),
    ],
)
def test_checkpoint_other_options_rejected(changed, line, train, tmp_path) -> None:
    path = tmp_path / "state"
    train(**SEEDED, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(OsoError) as error:
        train(**{**SEEDED, "checkpoint": path, **changed})
    assert str(error.value).startswith(f"checkpoint: {path}: ")
    assert line in str(error.value)
    assert path.read_bytes() == before


def test_checkpoint_other_model_or_data_rejected(train, data, tmp_path) -> None:
    path = tmp_path / "state"
    train(**SEEDED, checkpoint=path)
    inputs, targets = data
    frozen = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    frozen[0].requires_grad_(False)
    for changed, line in (
        ({"model": nn.Linear(6, 2)}, "model is 'Sequential'; must be 'Linear'"),
        ({"model": nn.Sequential(nn.Linear(6, 2))}, "parameters is [["),
        ({"model": frozen}, "parameters is [["),
        ({"data": (inputs[:-1], targets[:-1])}, "examples is 400; must be 399"),
    ):
        with pytest.raises(OsoError) as error:
            train(**{**SEEDED, "checkpoint": path, **changed})
        assert line in str(error.value)


@pytest.mark.parametrize("spoilt", [b"", b"text", None])
def test_checkpoint_invalid_file_rejected_and_kept(spoilt, train, tmp_path) -> None:
    """A damaged checkpoint has released steps, which a new training would not count."""
    path = tmp_path / "state"
    train(**SEEDED, checkpoint=path)
    content = path.read_bytes()
    damaged = content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]
    content = damaged if spoilt is None else spoilt
    path.write_bytes(content)
    with pytest.raises(OsoError, match="not a checkpoint of train_private, or damaged"):
        train(**SEEDED, checkpoint=path)
    assert path.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["state", "state.lock"]


@pytest.mark.parametrize(("option", "fewest"), [({}, 18), ({"checkpoint_every": 10}, 3)])
def test_checkpoint_every_writes_during_training(option, fewest, train, tmp_path) -> None:
    """By default, a checkpoint is written after each twentieth of the training."""
    written = []

    class Watched(torch.optim.SGD):
        def step(self) -> None:
            super().step()
            path = tmp_path / "state"
            written.append(path.stat().st_mtime_ns if path.exists() else 0)

    options = {"epochs": 5, "checkpoint": tmp_path / "state"}
    train(**options, **option, optimizer=lambda model: Watched(model.parameters(), lr=0.1))
    assert len(written) == 40
    assert fewest <= len({*written}) - 1 <= 20


def test_checkpoint_in_use_rejected(train, tmp_path) -> None:
    """Two trainings from one checkpoint would release more steps than the file counts."""
    path, refused, told = tmp_path / "state", [], []

    def start_another(evaluation) -> None:
        with pytest.raises(OsoError) as error:
            train(**SEEDED, checkpoint=path, callbacks=[told.append])
        refused.append(str(error.value))

    first = train(**SEEDED, evaluate_every=3, checkpoint=path, callbacks=[start_another])
    assert {*refused} == {f"checkpoint: {path}: another training uses it; wait for it"}
    assert told == []
    again = train(**SEEDED, evaluate_every=3, checkpoint=path)
    assert again.ledger == first.ledger


def test_checkpoint_symlink_followed_hardlink_rejected(train, tmp_path) -> None:
    """A second name of a checkpoint must not repeat its steps with other noise."""
    path, link, released = tmp_path / "run", tmp_path / "latest", []

    def call(name, *more) -> None:
        train(
            epochs=4, evaluate_every=4, checkpoint=name, callbacks=[*more],
            evaluate=lambda model: released.append(next(model.parameters()).sum().item()) or 0.0,
        )  # fmt: skip

    for name, stop in ((path, 8), (link, 16)):
        with pytest.raises(KilledError):
            call(name, kill_at(stop))
        if name == path:
            link.symlink_to(path)
    assert link.is_symlink()
    call(path)
    assert len({*released}) == 8  # of 32 steps; another noise would give other values
    os.link(path, tmp_path / "other")
    with pytest.raises(OsoError, match="has another name, a hard link"):
        call(path)


def test_checkpoint_chdir_keeps_path(train, tmp_path, monkeypatch) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    seen = []

    def elsewhere(model) -> float:
        seen.append(next(model.parameters()).sum().item())
        os.chdir(tmp_path / "below")
        return 0.0

    def call(*more):
        os.chdir(tmp_path)
        return train(evaluate=elsewhere, evaluate_every=4, checkpoint="state", callbacks=[*more])

    with pytest.raises(KilledError):
        call(kill_at(12))
    first, steps = list(seen), call().ledger.step_count
    assert os.listdir(tmp_path / "below") == []
    assert len(first) == 3
    assert len({*seen}) == steps // 4


def test_checkpoint_saved_model_rejected(train, tmp_path) -> None:
    path = tmp_path / "model"
    train(**SEEDED).save(path)
    before = path.read_bytes()
    with pytest.raises(OsoError, match="not a checkpoint of train_private; name another file"):
        train(**SEEDED, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"checkpoint": 3}, "checkpoint: 3; must be a file name"),
        ({"checkpoint": "no/such/folder/state"}, ": no/such/folder/state: no folder /"),
        ({"checkpoint": "."}, "checkpoint: .: not a file"),
        ({"checkpoint_every": 3}, "checkpoint_every: has no effect without checkpoint"),
        ({"checkpoint": "state", "checkpoint_every": 0}, "checkpoint_every: 0; must be an int"),
        ({"callbacks": print}, "callbacks: must be a list of functions"),
        ({"callbacks": [3]}, "callbacks: must be a list of functions"),
    ],
)
def test_checkpoint_and_callbacks_invalid_rejected(
    options, line: str, train, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OsoError) as error:
        train(**options)
    assert line in str(error.value)
    assert os.listdir(tmp_path) == []


def test_search_private_checkpoint_rejected(search, tmp_path) -> None:
    with pytest.raises(OsoError, match="checkpoint: not supported by search_private"):
        search(checkpoint=tmp_path / "state")
