"""`scripts/campaign.sh`, as `make campaign`, `campaign-stop` and `collect` call it, in a clone."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oso_dp.results.read import read_results

pytestmark = pytest.mark.skipif(shutil.which("setsid") is None, reason="needs util-linux")


@pytest.fixture
def clone(repo, tmp_path):
    """The last commit with this environment as its .venv, and the script and code as they are."""
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(repo), str(place)], check=True)
    shutil.copy(repo / "scripts/campaign.sh", place / "scripts/campaign.sh")
    assert not (place / ".venv").exists()  # a link to a real environment would be written to
    write_python(place)
    return place


def write_python(clone, before: str = "") -> None:
    python = clone / ".venv/bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\n{before}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def start(clone, command, **variables):
    known = {"MINUTES": "5", "PROCESSES": "1", "NICE": "0", "PLANS": "ci/smoke", "FILTER": ""}
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        ["bash", "scripts/campaign.sh", command],
        cwd=clone,
        env={**outside, **known, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process, status=0) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == status, said
    return said


def wait_for(condition) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def list_workers(clone) -> list[int]:
    """Processes that train in this clone."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
            if b"oso_dp.scheduler" in text and Path(path.parent, "cwd").resolve() == clone:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.nightly
def test_campaign_fills_and_collects_stores(clone) -> None:
    before = sorted((clone / "results").rglob("*"))
    choices = {"one": "online/*", "two": "no_dp/*"}
    started = [
        start(clone, "start", STORE=f"other/{name}", FILTER=pattern, PROCESSES="2")
        for name, pattern in choices.items()
    ]
    for process in started:
        assert " 0 left (about 0.0 h" in end(process)
    for name, pattern in choices.items():
        end(start(clone, "collect", STORE=f"other/{name}"))
        runs = read_results(clone / "other" / name).runs
        assert {*runs["method"]} == {pattern[:-2]}
        assert runs["run_id"].is_unique
    assert ": 0 runs of smoke to do" in end(
        start(clone, "start", STORE="other/one", FILTER="online/*")
    )
    assert sorted((clone / "results").rglob("*")) == before
    assert "no complete runs yet" in end(start(clone, "collect"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PLANS": "nonesuch"}, "PLANS: nonesuch; no config/nonesuch.yaml in commit"),
        ({"PROCESSES": "0"}, "PROCESSES=0; must be an integer from 1"),
    ],
)
def test_campaign_invalid_variables_rejected(clone, variables, said) -> None:
    assert said in end(start(clone, "start", **variables), status=2)
    assert not (clone / "build/campaign/plans").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
def test_campaign_stopped_or_terminated_resumes(clone, how, tmp_path) -> None:
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    wait = f"touch {asked}; until [ -e {gate} ]; do sleep 0.1; done"
    write_python(clone, f'case "$*" in *"oso_dp plan"*) {wait};; esac')
    first = start(clone, "start", PROCESSES="2")
    wait_for(asked.exists)
    assert "STORE=results: a campaign for it is running" in end(start(clone, "start"), status=2)
    if how == "stop":
        stop = start(clone, "stop")
        wait_for((clone / "build/campaign/parts/.progress/stop").exists)
        assert stop.poll() is None
        gate.touch()
        assert "no process is training" in end(stop)
        end(first, status=130)
    else:
        gate.touch()
        wait_for(lambda: len(list_workers(clone)) == 2)
        first.send_signal(signal.SIGTERM)
        end(first, status=130)
    assert list_workers(clone) == []
    assert "no process is training" in end(start(clone, "stop"))
    assert " 0 left (about" in end(start(clone, "start", FILTER="no_dp/*"))
