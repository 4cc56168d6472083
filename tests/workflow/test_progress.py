"""The line on how far a study is: from parts and logs, the same however its jobs are spread."""

import contextlib
import io
import os

import pytest

from oso_dp.cli.printing import Progress
from oso_dp.snakemake_support.progress import Job, ProgressReporter


@pytest.fixture
def job(tmp_path):
    """A job of so many hours, what its log says, and whether its part is there."""

    def make(name: str, hours: float, log: str | None = None, done: bool = False) -> Job:
        part, file = tmp_path / "parts" / name, tmp_path / f"{name}.log"
        part.mkdir(parents=True, exist_ok=True)
        if log is not None:
            file.write_text(log)
        if done:
            (part / "runs.parquet").touch()
        return Job(hours, part, file)

    return make


def said(run: int, runs: int, step: int, steps: int) -> str:
    """As a training job says it."""
    progress = Progress("mnist.online.k9.eps3 [0]", runs, steps, interval=-1.0)
    with contextlib.redirect_stderr(io.StringIO()) as log:
        progress(run - 1, step)
    return log.getvalue()


@pytest.mark.parametrize(
    ("log", "done", "share"),
    [
        (None, False, 0.0),
        ("", False, 0.0),
        ("something else\n", False, 0.0),
        (said(1, 4, 50, 100), False, 0.125),
        (said(1, 4, 50, 100) + said(4, 4, 50, 100), False, 0.875),
        ("x" * 10_000 + "\n" + said(2, 4, 0, 100), False, 0.25),
        (said(2, 4, 10, 100) + "oso: error: it broke\n", False, 0.275),
        (said(1, 4, 50, 100), True, 1.0),
    ],
)
def test_job_fraction_done_follows_log(job, log, done: bool, share: float) -> None:
    assert job("one", 1.0, log, done).fraction_done() == pytest.approx(share)


@pytest.mark.parametrize("jump", [-86_400, -1, 0, 3600])
def test_job_pending_ignores_earlier_files(jump, job) -> None:
    made = job("one", 1.0, said(1, 4, 50, 100), done=True)
    ahead = Job.pending(made.hours, made.output, made.log)
    assert ahead.fraction_done() == 0.0
    at = made.log.stat().st_mtime + jump
    made.log.write_text(said(2, 4, 50, 100))
    os.utime(made.log, (at, at))
    assert ahead.fraction_done() == 0.375
    (made.output / "new").touch()
    os.utime(made.output / "new", (at, at))
    (made.output / "new").rename(made.output / "runs.parquet")  # as parts are written
    assert ahead.fraction_done() == 1.0


def test_progress_reporter_estimates_hours_left(job) -> None:
    now = 0.0
    lines: list[str] = []
    watch = ProgressReporter(
        "paper",
        [job("stored", 10.0, done=True), job("long", 30.0), job("short", 10.0)],
        lines.append,
        clock=lambda: now,
    )
    watch.poll()
    watch.poll()
    assert lines == ["paper: 20.0 % of the training done"]
    now = 3600.0
    job("long", 30.0, said(1, 1, 50, 100))
    watch.poll()
    assert lines[-1] == "paper: 50.0 % of the training done, about 1.7 hours left"
    job("long", 30.0, said(1, 1, 95, 100))
    job("short", 10.0, said(1, 1, 90, 100))
    watch.poll()
    assert lines[-1] == "paper: 95.0 % of the training done, about 4 minutes left"
    job("long", 30.0, done=True)
    job("short", 10.0, done=True)
    watch.poll()
    assert lines[-1] == "paper: 100.0 % of the training done"
