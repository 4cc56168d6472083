"""How far a training is, on standard error: a bar on a terminal, a line now and then in a log."""

import pytest

from oso_dp.api import progress_bar


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set by the test; they begin far from zero."""
    time = [1000.5]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: time[0])
    return time


def said(bar: progress_bar.ProgressBar, clock, capsys, *steps: tuple[int, float]) -> list[str]:
    for step, seconds in steps:
        clock[0] = 1000.5 + seconds
        bar(step)
    return capsys.readouterr().err.splitlines()


def test_a_log_has_a_line_every_ten_seconds(clock, capsys) -> None:
    bar = progress_bar.ProgressBar(100)
    steps = [(1, 1.0), (2, 9.9), (3, 10.0), (4, 12.0), (5, 19.9), (6, 20.5), (100, 21.0)]
    expected = ["step 3 of 100, 10 s", "step 6 of 100, 20 s", "step 100 of 100, 21 s"]
    assert said(bar, clock, capsys, *steps) == expected
    bar.end()
    assert capsys.readouterr().err == ""


def test_a_short_training_leaves_a_log_alone(clock, capsys) -> None:
    assert said(progress_bar.ProgressBar(3), clock, capsys, (1, 1.0), (3, 9.9)) == []


def test_a_terminal_has_a_bar(clock, capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress_bar.sys.stderr, "isatty", lambda: True)
    bar = progress_bar.ProgressBar(4)
    for step, seconds in ((1, 0.1), (2, 0.3), (3, 0.4), (4, 0.45)):
        clock[0] = 1000.5 + seconds
        bar(step)
    bar.end()
    lines = capsys.readouterr().err.split("\r")[1:]
    assert lines == [f"[{'#' * 15:<30}] step 2 of 4, 0 s", f"[{'#' * 30}] step 4 of 4, 0 s\n"]
