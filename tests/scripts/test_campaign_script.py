"""`scripts/campaign`, as `make campaign` and `make collect` call it, in a clone."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from oso_dp.results.read import read_results


@pytest.fixture
def clone(repo, tmp_path):
    """The last commit, with this environment as its .venv and the script as it is now."""
    place = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(repo), str(place)], check=True)
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


@pytest.mark.parametrize(
    ("variable", "value", "said", "store", "lock"),
    [
        ("MINUTES", "an hour", "--minutes: an hour: must be a number above 0", "a_b", "a_b"),
        ("PROCESSES", "0", "--processes: 0: must be a whole number from 1", "a/b", "a%2Fb"),
        ("NICE", "20", "--nice: 20: must be a whole number from 0 to 19", "a%2Fb", "a%252Fb"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_planned(
    clone, variable, value, said, store, lock
):
    """And no two stores wait for one another."""
    process = call(clone, "start", **{variable: value, "STORE": store})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"argument {said}" in output
    campaign = clone / "build" / "campaign"
    assert [path.name for path in campaign.glob(".alone-*")] == [f".alone-{lock}"]
    assert not (campaign / "plans").exists()


def test_a_pattern_is_not_taken_for_names_of_files(clone):
    """With DATA_DIR=raw beside the code, raw/mnist is such a file."""
    (clone / "raw" / "nothing").mkdir(parents=True)
    process = call(clone, "start", ONLY="*/nothing", STORE="elsewhere/")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "*/nothing" in said
    assert (clone / "build" / "campaign" / ".alone-elsewhere").exists()


def test_each_preparation_of_a_data_set_is_made(clone, tmp_path):
    """A plan whose texts have 25 words found no file, and none was made for it."""
    asked = tmp_path / "asked"
    record = f'case "$*" in *"oso_dp data"*) echo "$@" >> {asked}; exit 1;; esac'
    python = clone / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\n{record}\nexec "{sys.executable}" "$@"\n')
    process = call(clone, "start", PLANS="words_25", STORE="elsewhere", DATA_DIR="a folder")
    said, _ = process.communicate(timeout=100)
    assert asked.read_text() == (
        "-m oso_dp data ag_news_partial --words=25 --unknown-words=zeros"
        " --output build/data/ag_news_partial-25.npz --data-dir a folder\n"
    )
    assert process.returncode == 2
    assert "ag_news_partial-25 is left out" in said
    assert "`oso data ag_news_partial --words=25 --unknown-words=zeros --output ...` makes" in said


def wait_for(condition) -> None:
    end_ = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end_
        time.sleep(0.05)


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock here")
def test_one_campaign_for_a_store_also_while_it_is_starting_and_stop_reaches_it(clone, tmp_path):
    """A first one that still prepares was not there for a second, nor for stop."""
    python = clone / ".venv" / "bin" / "python"
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    # The plan takes until the gate is there.
    wait = f"touch {asked}; until [ -e {gate} ]; do sleep 0.1; done"
    slow = f'case "$*" in *"oso_dp plan"*) {wait};; esac'
    python.write_text(f'#!/bin/sh\n{slow}\nexec "{sys.executable}" "$@"\n')
    first = call(clone, "start")
    wait_for(asked.exists)
    second = call(clone, "start")
    said, _ = second.communicate(timeout=20)
    assert (second.returncode, said.count("\n")) == (2, 1)
    assert "STORE=results: a campaign for it is starting or at work here" in said
    stop = call(clone, "stop")
    wait_for((clone / "build/campaign/.alone-results.stop").exists)
    assert stop.poll() is None
    gate.touch()
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130
    assert said.endswith("stopped while it was starting\n")
    assert "nobody is at work" in end(stop)
    # At work it is stopped, too, and then another one may begin.
    third = call(clone, "start")
    wait_for((clone / "build/campaign/parts/.progress/at-work").exists)
    fourth = call(clone, "start")
    assert "starting or at work" in fourth.communicate(timeout=20)[0]
    assert fourth.returncode == 2
    assert "nobody is at work" in end(call(clone, "stop"))
    third.communicate(timeout=60)
    assert "nobody is at work" in end(call(clone, "stop"))  # who is not there is no error
    assert "runs of smoke to do" in end(call(clone, "start", ONLY="no_dp/*"))
