"""Killed at any moment and started again, a job ends with the numbers of one that was not.

In the long form (OSO_TEST_ROUNDS=100) ten kills each of a job and of a campaign, in each precision;
`-s` prints them as a table.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from oso_dp.data import prepare_dataset
from oso_dp.results.read import read_results
from oso_dp.study.config import parse_config
from oso_dp.study.plan import make_plan_with_noise, write_plan

LONG = int(os.environ.get("OSO_TEST_ROUNDS", "10")) >= 100
KILLS = 10 if LONG else 1
pytestmark = [] if LONG else [pytest.mark.nightly]  # `make fuzz` has the long form
COHORT = "glyphs.online.k2.eps3"
# Half of the time goes into checkpoints, so that half of the kills meet one that is being written.
OFTEN = "import math; from oso_dp.training import loop; loop.CHECKPOINT_TIME_FRACTION = math.inf; "
STARTS = {
    "job": OFTEN + "from oso_dp.cli import main; main()",
    "campaign": OFTEN + "from oso_dp.scheduler.__main__ import main; import sys; sys.exit(main())",
}


def study(precision: str):
    section = {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 0.01}
    values = {
        "name": "kills",
        "datasets": {"glyphs": {**section, "precision": precision}},
        "methods": {"online": {}},
        "values_per_axis": [2],
        "seeds": [0],
        "batch_size": 100,
        "epochs": 2 if LONG else 1,
        "evaluate_every": 2,
    }
    return parse_config(values, "kills")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("kills")
    prepare_dataset("glyphs", folder / "glyphs.npz")
    return folder


def start(kind: str, place: Path, output: Path) -> subprocess.Popen:
    common = ["--plan", place / "plan.json"]
    own = {
        "job": ["train", *common, "--cohort", COHORT, "--data", place / "glyphs.npz", "--output"],
        "campaign": [*common, "--minutes", 9, "--threads", 1, "--data", place, "--results"],
    }
    arguments = [*map(str, own[kind]), str(output)]
    command = [sys.executable, "-c", STARTS[kind], *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(kind: str, place: Path, output: Path) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Its rows but for their times, and the seconds since the first checkpoint or the start."""
    process = start(kind, place, output)
    began = time.time()
    while process.poll() is None and not kept(output):
        time.sleep(0.01)
    began = time.time() if kept(output) else began
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    parts = [output] if kind == "job" else sorted(output.glob("[!.]*"))
    results = [read_results(part) for part in parts]
    runs = pd.concat([one.runs for one in results]).drop(columns="wall_seconds")
    evaluations = pd.concat([one.evaluations for one in results])
    runs = runs.sort_values("run_id", ignore_index=True)
    evaluations = evaluations.sort_values(["run_id", "step", "split"], ignore_index=True)
    return runs, evaluations, time.time() - began


def kept(output: Path) -> list[Path]:
    return list(output.rglob("*.pt"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"] if LONG else ["float32"])
@pytest.mark.parametrize("kind", STARTS if LONG else ["job"])
def test_train_killed_anytime_resumes_identically(kind, precision, place, tmp_path) -> None:
    config = study(precision)
    write_plan(make_plan_with_noise(config, {COHORT: 2.0}), place / "plan.json")
    runs, evaluations, seconds = finish(kind, place, tmp_path / "whole")
    dice = random.Random(f"{kind} {precision}")
    for number in range(KILLS):
        output = tmp_path / f"killed{number}"
        process = start(kind, place, output)
        while not kept(output):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.005)
        time.sleep(dice.uniform(0, seconds))
        process.kill()
        at = time.time()
        process.communicate()
        lost = at - max(path.stat().st_mtime for path in kept(output) or [output])
        again, scores, _ = finish(kind, place, output)
        pd.testing.assert_frame_equal(again, runs, check_exact=True)
        pd.testing.assert_frame_equal(scores, evaluations, check_exact=True)
        print(f"| {kind} | {precision} | {number + 1} | {lost:.3f} s lost | the same |")
