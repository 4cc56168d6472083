"""A line a minute, and workers that end, if need be by force."""

import subprocess
from types import SimpleNamespace

import pytest

from oso_dp.campaign import team
from oso_dp.campaign.__main__ import main
from oso_dp.campaign.team import EVERY, PATIENCE, Minutes
from oso_dp.errors import OsoError


def test_a_line_is_said_each_minute_and_counts_from_the_beginning() -> None:
    now, lines, asked = [5000.0], [], []
    parts = SimpleNamespace(trained=7, look=lambda: asked.append("look"))
    campaign = SimpleNamespace(
        parts=parts,
        measure=lambda: asked.append("measure"),
        left=[("a", 3), ("b", 1200)],
        speed=SimpleNamespace(known=True),
        hours_left=8.0,
        say=lines.append,
    )
    minutes = Minutes(campaign, 2, lambda: now[0])
    said = []
    for second in range(1, 200):
        now[0] += 1
        parts.trained += 1
        before = len(lines)
        minutes()
        if len(lines) > before:
            said.append(second)
    assert said == [EVERY, 2 * EVERY, 3 * EVERY]
    assert asked == ["look", "measure"] * len(said)  # others' runs, and how long they took
    assert lines[0] == "60 runs done; 1,203 left, about 4.0 hours at the measured speed"


def test_a_worker_that_failed_is_named_by_its_last_line(tmp_path) -> None:
    (tmp_path / "worker-0.log").write_text("all is well\n")
    (tmp_path / "worker-1.log").write_text("a line\noso: error: a.npz: no such file\n")
    at_work, failed = SimpleNamespace(poll=lambda: None), SimpleNamespace(poll=lambda: 2)
    team._refuse_failed([at_work, at_work], tmp_path)
    with pytest.raises(OsoError, match=r"^process 1 ended with status 2: a\.npz: no such file$"):
        team._refuse_failed([at_work, failed], tmp_path)
    (tmp_path / "worker-1.log").write_text("")
    with pytest.raises(OsoError, match="status 2: nothing"):
        team._refuse_failed([at_work, failed], tmp_path)


def test_a_worker_that_fails_as_the_last_one_is_no_success(tmp_path, monkeypatch) -> None:
    """It ends between two looks at the workers: what it lacks would pass as done."""
    (tmp_path / "worker-0.log").write_text("oso: error: a.npz: no such file\n")
    answers = iter([None, None])  # at work, as long as anybody looks

    def start(*_: object) -> SimpleNamespace:
        ended = {"terminate": lambda: None, "wait": lambda timeout=None: 2}
        return SimpleNamespace(poll=lambda: next(answers, 2), **ended)

    monkeypatch.setattr(team, "_start", start)
    monkeypatch.setattr(team, "Minutes", lambda *_: lambda: None)
    monkeypatch.setattr(team.signal, "signal", lambda *_: None)
    monkeypatch.setattr(team.time, "sleep", lambda _: None)
    campaign = SimpleNamespace(parts=SimpleNamespace(progress=tmp_path))
    with pytest.raises(OsoError, match=r"process 0 ended with status 2: a\.npz: no such file"):
        team.lead([], campaign, 1)


def test_workers_share_their_time_to_end_and_are_then_killed(monkeypatch) -> None:
    now, waited, ended = [1000.0], [], []

    class Deaf:
        def __init__(self, name: str) -> None:
            self.name = name

        def terminate(self) -> None:
            ended.append(f"{self.name} asked")

        def wait(self, timeout: float | None = None) -> None:
            if timeout is not None:
                waited.append(timeout)
                now[0] += timeout
                raise subprocess.TimeoutExpired("worker", timeout)

        def kill(self) -> None:
            ended.append(f"{self.name} killed")

    monkeypatch.setattr(team.time, "monotonic", lambda: now[0])
    team._end([Deaf("first"), Deaf("second")])
    assert waited == [PATIENCE, 0]
    assert ended == ["first asked", "second asked", "first killed", "second killed"]


def test_a_gpu_that_is_not_there_is_refused(folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    plan = ["--plan", str(folder / "plan.json"), "--device", "cuda"]
    assert main(["--minutes", "1", "--results", str(tmp_path), *plan]) == 2
    said = "--device cuda: no CUDA device is visible here; allowed is cpu"
    assert capsys.readouterr().err == f"oso: error: {said}\n"


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "1e999", "soon"])
def test_minutes_are_a_number_above_nothing(minutes: str, tmp_path, capsys) -> None:
    assert main([f"--minutes={minutes}", "--results", str(tmp_path)]) == 2
    assert f"{minutes}: must be a number above 0" in capsys.readouterr().err
