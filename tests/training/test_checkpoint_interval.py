"""What is kept of a run where somebody wants it to end, and what keeping costs."""

import pytest

from oso_dp.errors import InterruptedByUser
from oso_dp.training import loop
from oso_dp.training.loop import train


@pytest.mark.parametrize("name", ["online", "adam_wosm"])
def test_a_run_that_is_interrupted_after_each_step_ends_the_same(
    name, arrays, make_task, make_run, tmp_path
) -> None:
    """Whatever a step leaves to the next one is kept, and no step is taken twice."""
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
def test_a_runs_time_is_that_of_all_its_steps_however_often_it_was_interrupted(
    interrupted, arrays, make_task, make_run, tmp_path
) -> None:
    """A second for each step, shared by the two runs; nothing for the time between."""
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


def test_checkpoints_take_a_hundredth_of_the_time_at_most(
    arrays, make_task, make_run, tmp_path, monkeypatch
) -> None:
    """A save takes a second here, a step ten; it would be kept at every fourth step."""
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
