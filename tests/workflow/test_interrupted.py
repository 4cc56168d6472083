"""A study whose Snakemake ends, however it does: no job outlives it, and the next one goes on."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.workflow.test_workflow import snakemake, wait_for  # noqa: F401 (a fixture)

# Long enough to be interrupted; its jobs keep what they have at each fifth step.
LONG = ("--until", "train", "--config", "epochs=1000", "evaluate_every=5")


def jobs(folder: Path) -> list[str]:
    """Command lines of processes that train for the study in this folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_text().replace("\0", " ")
            if "train --plan" in line and (process / "cwd").readlink() == folder:
                lines.append(line)
        except OSError:  # it ended meanwhile
            continue
    return lines


@pytest.mark.skipif(not os.path.exists("/proc/self/cwd"), reason="needs /proc")
def test_no_job_outlives_its_study_and_the_next_start_goes_on(snakemake, tmp_path) -> None:  # noqa: F811
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        for kept in tmp_path.rglob("state.pt"):
            kept.unlink()
        study = snakemake("ci/smoke", *LONG, "--cores", "1", start=True)
        try:
            wait_for(tmp_path / "build", "state.pt")
            assert jobs(tmp_path)
        finally:
            os.kill(study.pid, number)  # it alone
        began = time.monotonic()
        while jobs(tmp_path) and time.monotonic() < began + 30:
            time.sleep(0.1)
        took = time.monotonic() - began
        output = study.communicate(timeout=60)[0]
        assert took < 10, output
        assert "the study that started this job has ended: stopped at step" in output
        assert "Traceback" not in output
        assert any(tmp_path.rglob("state.pt"))
