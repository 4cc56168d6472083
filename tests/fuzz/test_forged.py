"""A checkpoint with a right checksum that says what no training comes to: set aside, run anew."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.test_job import study

from oso_dp.data.arrays import Arrays
from oso_dp.errors import InterruptedByUser
from oso_dp.methods import find_method, method_names
from oso_dp.study.cohort import Run
from oso_dp.training import job as job_module
from oso_dp.training.checkpoint import load_checkpoint, save_checkpoint
from oso_dp.training.job import run_job
from oso_dp.training.loop import train
from oso_dp.training.task import StudyTask

Forge = Callable[[dict[str, Any]], None]


class KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def begun(arrays, tmp_path_factory) -> tuple[tuple, dict[str, Any], list]:
    """Of three runs, of which the last has diverged: what was kept at step 8 of 12, and the end."""
    method = find_method("online")
    task = StudyTask(
        method=method(method.Options(), 0.9),
        model="small_cnn",
        metric="accuracy",
        noise_multiplier=1.0,
        batch_size=20,
        steps=12,
        evaluate_every=4,
    )
    runs = [Run("a", 0, 0.1, 0.1, 0.5), Run("b", 1, 0.1, 0.1, 0.5), Run("c", 2, 1e38, 0.1, 0.5)]
    job = (task, runs, arrays)
    path = tmp_path_factory.mktemp("begun") / "state.pt"

    def kill(step: int) -> None:
        if step == 9:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oso_dp.training.loop.KEEPING", math.inf)
        with pytest.raises(KilledError):
            train(*job, checkpoint=path, fingerprint="f", on_progress=kill)
    content = load_checkpoint(path, "f")
    assert content is not None
    assert content["alive"] == [0, 1]
    return job, content, train(*job)


def first(content: dict[str, Any]) -> dict[str, Any]:
    return content["outcomes"][0]


def score(**values: Any) -> Forge:
    return lambda content: first(content)["evaluations"][0].update(values)


def says(run: int, **values: Any) -> Forge:
    return lambda content: content["outcomes"][run].update(values)


def books(edit: Callable[[dict[str, Any]], None]) -> Forge:
    """Of the first run, which is at work."""

    def forge(content: dict[str, Any]) -> None:
        ledger = json.loads(content["ledgers"][0])
        edit(ledger)
        content["ledgers"][0] = json.dumps(ledger)

    return forge


def less_noise(ledger: dict[str, Any]) -> None:
    for query in ledger["steps"][0]["queries"]:
        query["noise_multiplier"] *= 2


def memory(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Forge:
    return lambda content: content["state"].update(memory=change(content["state"]["memory"]))


FORGED: dict[str, Forge] = {
    "a metric above 1": score(value=1.5),
    "a metric below 0": score(value=-0.1),
    "a metric that is no number": score(value=math.nan),
    "a metric of another kind": score(value=torch.tensor(0.5)),
    "a loss without end": score(loss=math.inf),
    "another metric's name": score(metric="mse"),
    "another run's score": score(run_id="b"),
    "a step that is not evaluated": score(step=3),
    "a step beyond the plan": score(step=16),
    "a half that is not there": score(split="train"),
    "a threshold below 0": score(threshold=-1.0),
    "a column too many": score(epsilon=0.1),
    "more evaluations than steps": lambda c: first(c)["evaluations"].append(
        {**first(c)["evaluations"][-1], "step": 12}
    ),
    "an evaluation twice": lambda c: first(c)["evaluations"].extend(first(c)["evaluations"][:3]),
    "no evaluation": says(0, evaluations=[]),
    "time that ran backwards": says(0, wall_seconds=-1.0),
    "time without end": says(0, wall_seconds=math.inf),
    "a run that was finished early": says(0, status="finished"),
    "a run that is at work and diverged": says(0, diverged_at=3),
    "another status": says(2, status="done"),
    "a run that came to life again": says(2, status="running", diverged_at=None, ledger=""),
    "a run that diverged later than now": says(2, diverged_at=9),
    "a run that diverged at no step": says(2, diverged_at=True),
    "a run that diverged without a ledger": says(2, ledger=""),
    "steps that its ledger lacks": lambda c: c["state"].update(step=12),
    "steps beyond the plan": lambda c: c["state"].update(step=10**9),
    "a ledger of fewer steps": books(lambda ledger: ledger["steps"][0].update(count=7)),
    "a ledger of more noise": books(less_noise),
    "a ledger of another sampling": books(lambda ledger: ledger.update(sampling_rate=0.01)),
    "a ledger that is none": books(lambda ledger: ledger.pop("steps")),
    "a memory under another name": memory(lambda m: {f"the {name}": m[name] for name in m}),
    "no memory": memory(lambda m: {}),
    "a memory too many": memory(lambda m: {**m, "more": next(iter(m.values()))}),
    "a memory of other shapes": memory(lambda m: {name: m[name].flatten(1)[:, :1] for name in m}),
    "no parameters": lambda c: c["state"]["parameters"].fill_(math.nan),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_state_is_set_aside_and_its_runs_begin_anew(name, begun, tmp_path, caplog) -> None:
    job, content, _ = begun
    forged = {kind: deepcopy(content[kind]) for kind in ("state", "outcomes", "alive", "ledgers")}
    FORGED[name](forged)
    save_checkpoint(tmp_path / "state.pt", "f", forged)
    steps: list[int] = []

    def look(step: int) -> None:
        steps.append(step)
        raise KilledError

    with pytest.raises(KilledError):
        train(*job, checkpoint=tmp_path / "state.pt", fingerprint="f", on_progress=look)
    assert steps == [1]
    (line,) = [m for m in caplog.messages if "damaged" in m]
    assert line.startswith(f"{tmp_path / 'state.pt'}: damaged, or of an older version; renamed to ")
    assert "\n" not in line
    assert (tmp_path / "state.pt.damaged").exists()


def test_after_a_forged_state_the_outcomes_are_those_of_a_first_start(begun, tmp_path) -> None:
    """Once its step was taken and its ledgers were not: the books lacked what came before."""
    job, content, end = begun
    FORGED["a ledger of another sampling"](forged := deepcopy(content))
    forged.pop("fingerprint")
    save_checkpoint(tmp_path / "state.pt", "f", forged)
    outcomes = train(*job, checkpoint=tmp_path / "state.pt", fingerprint="f")
    assert [one.ledger for one in outcomes] == [one.ledger for one in end]
    assert [one.evaluations for one in outcomes] == [one.evaluations for one in end]


def test_one_that_is_not_forged_is_gone_on_from(begun, tmp_path, caplog) -> None:
    job, content, end = begun
    save_checkpoint(tmp_path / "state.pt", "f", {**content, "fingerprint": "f"})
    steps: list[int] = []
    outcomes = train(
        *job, checkpoint=tmp_path / "state.pt", fingerprint="f", on_progress=steps.append
    )
    assert steps[0] == 9
    assert [one.evaluations for one in outcomes] == [one.evaluations for one in end]
    assert caplog.messages == []


@pytest.mark.parametrize("name", method_names())
def test_no_methods_own_checkpoint_is_taken_for_a_forged_one(
    name, arrays, make_task, make_run, tmp_path, caplog
) -> None:
    """Whatever its queries, and however it splits their noise."""
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


# What a job keeps of runs that are done


@pytest.fixture(scope="module")
def done(arrays, tmp_path_factory) -> tuple[tuple, str, dict[str, Any]]:
    """A job of two runs, and what it kept of the first."""
    train_part = np.tile(arrays.train_inputs, (30, 1, 1, 1)), np.tile(arrays.train_targets, 30)
    whole = job_of_two(Arrays(*train_part, arrays.test_inputs, arrays.test_targets))
    kept: list[tuple[str, dict[str, Any]]] = []

    def keep(path: Path, fingerprint: str, content: dict[str, Any]) -> None:
        kept.append((fingerprint, deepcopy(content)))
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "save_checkpoint", keep)
        with pytest.raises(KilledError):
            run_job(*whole, tmp_path_factory.mktemp("done"))
    return whole, *kept[0]


def job_of_two(arrays: Arrays) -> tuple:
    return study(), study().runs[:2], arrays


def row(**values: Any) -> Forge:
    return lambda content: content["runs"][0].update(values)


FORGED_ROWS: dict[str, Forge] = {
    "a metric above 1": lambda c: c["evaluations"][0].update(value=2.0),
    "a score of another run": lambda c: c["evaluations"][0].update(run_id="b"),
    "a score too many": lambda c: c["evaluations"].append(c["evaluations"][-1]),
    "no score": lambda c: c["evaluations"].clear(),
    "another run's identity": row(run_id="a"),
    "the run twice": lambda c: c["runs"].append(c["runs"][0]),
    "another budget": row(epsilon=0.1),
    "less noise than it had": row(noise_multiplier=9.0),
    "another seed": row(seed=1),
    "a seed of another kind": row(seed=torch.tensor(0)),
    "another learning rate": row(learning_rate=5.0),
    "still running": row(status="running"),
    "diverged beyond the plan": row(status="diverged", diverged_at=11),
    "time that ran backwards": row(wall_seconds=-1e-9),
    "a ledger that is none": row(ledger="{}"),
    "a column too many": row(best=True),
    "a column too few": lambda c: c["runs"][0].pop("steps"),
    "a device that is no text": row(device=7),
    "no rows": lambda c: c.update(runs=None),
}


@pytest.mark.parametrize("name", [*FORGED_ROWS, "nothing"])
def test_forged_rows_are_set_aside_and_their_runs_begin_anew(
    name, done, tmp_path, caplog, monkeypatch
) -> None:
    whole, fingerprint, content = done
    forged = deepcopy(content)
    FORGED_ROWS.get(name, lambda content: None)(forged)
    save_checkpoint(tmp_path / "rows.pt", fingerprint, forged)
    begun: list[str] = []

    def begin(task: Any, group: Any, *given: Any, **options: Any) -> None:
        begun.extend(run.run_id for run in group)
        raise KilledError

    monkeypatch.setattr(job_module, "train", begin)
    with pytest.raises(KilledError):
        run_job(*whole, tmp_path)
    sound = name == "nothing"
    assert begun == [whole[1][sound].run_id]
    assert (tmp_path / "rows.pt").exists() == sound
    assert (tmp_path / "rows.pt.damaged").exists() == (not sound)
    assert len(caplog.messages) == (not sound)
    assert all(m.startswith(f"{tmp_path / 'rows.pt'}: damaged") for m in caplog.messages)
