"""`scripts/campaign`, as `make campaign` and `make collect` call it, in a clone."""

import os
import shutil
import subprocess
import sys

import pytest

from oso_dp.results.read import read_results


@pytest.fixture
def clone(repo, tmp_path):
    """The last commit, with this environment as its .venv and the script as it is now."""
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--no-local", str(repo), str(place)], check=True)
    shutil.copy(repo / "scripts" / "campaign", place / "scripts" / "campaign")
    python = place / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return place


def call(clone, command, **variables):
    known = {"MINUTES": "5", "PROCESSES": "1", "NICE": "0", "PLANS": "smoke", "ONLY": ""}
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        ["bash", "scripts/campaign", command],
        cwd=clone,
        env={**outside, **known, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process):
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def test_stores_of_their_own_two_at_once_and_nothing_twice(clone):
    """A plan without priorities, a store that is not there yet: each was refused once."""
    before = sorted((clone / "results").rglob("*"))
    elsewhere = {"STORE": "elsewhere/one", "ONLY": "online/*"}
    both = [
        call(clone, "start", **elsewhere),
        call(clone, "start", STORE="elsewhere/two", ONLY="no_dp/*"),
    ]
    for process in both:
        assert "left, about 0.0 hours" in end(process)
    end(call(clone, "collect", STORE="elsewhere/one"))
    end(call(clone, "collect", STORE="elsewhere/two"))
    methods = [
        set(read_results(clone / "elsewhere" / name).runs["method"]) for name in ("one", "two")
    ]
    assert methods == [{"online"}, {"no_dp"}]
    assert ": 0 runs of smoke to do" in end(call(clone, "start", **elsewhere))
    assert sorted((clone / "results").rglob("*")) == before
    assert "no complete runs yet" in end(call(clone, "collect"))


def test_a_plan_that_is_not_there_is_named(clone):
    process = call(clone, "start", PLANS="nonesuch")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "PLANS: nonesuch: there is no config/nonesuch.yaml in commit" in said
