"""The command line: what it trains and stores, and what it says in one line."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from tests.commands import refused
from tests.planned_rows import run_row

from oso_dp.cli import calibration_options
from oso_dp.files import json_text
from oso_dp.results.read import read_results
from oso_dp.results.write import write_table
from oso_dp.study.plan import Plan, read_plan, write_plan

COHORT = "glyphs.online.k2.eps3"


def train(oso, *other: object):
    where = ("--cohort", COHORT, "--data", "glyphs.npz", "--output", "part")
    return oso("train", "--plan", "plan.json", *where, *other)


def test_train_part_collected_into_store(oso, study) -> None:
    assert train(oso)[0] == 0
    status, output, _ = oso("collect", "part", "--store", "store")
    assert (status, output) == (0, "store: 2 runs, 12 evaluations\n")
    runs = read_results(study / "store").runs
    assert set(runs["status"]) == {"finished"}
    plan = json.loads((study / "plan.json").read_text())
    noise = {entry["name"]: entry["noise_multiplier"] for entry in plan["cohorts"]}
    assert set(runs["noise_multiplier"]) == {noise["glyphs.online.k2.eps3"]}
    status, output, _ = oso("summary", "--results", "store", "--report", "page.html")
    assert status == 0
    assert "page.html" in output


def test_train_locked_part_rejected(oso, study) -> None:
    (study / "part").mkdir()
    with FileLock(study / "part/.lock"):
        refused(train(oso), "--output: part; another job writes to it; wait for it")
        assert [path.name for path in (study / "part").iterdir()] == [".lock"]
    assert (study / "part/.lock").exists()  # as a killed job leaves it
    assert train(oso)[0] == 0


def test_train_missing_store_rejected_unless_allowed(oso, collected) -> None:
    (collected / "empty").mkdir()
    for name in ("stroe", "empty"):
        refused(
            train(oso, "--store", name),
            f"--store: {name}; no results store there",
            "--allow-missing-store",
        )
    refused(
        train(oso, "--store", "plan.json", "--allow-missing-store"),
        "--store: plan.json; no results store there",
    )
    assert len(read_results(collected / "part").runs) == 2
    assert train(oso, "--store", "store", "--allow-missing-store")[0] == 0
    assert len(read_results(collected / "part").runs) == 0
    assert train(oso, "--store", "to_come", "--allow-missing-store")[0] == 0
    assert len(read_results(collected / "part").runs) == 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "--shard", "1"], ["--shard: 1; must be 0 to 0 for glyphs.online.k2.eps3"]),
        (["train", "--threads", "0"], ["--threads", "must be an integer >= 1"]),
        (["train", "--data", "none.npz"], ["none.npz"]),
        (["train", "--plan", "none.json"], ["none.json"]),
        (["train", "--cohort", "mnist.x"], ["mnist.x", "not in the plan"]),
        (["train", "--output", "plan.json/part"], ["plan.json"]),
    ],
)
def test_train_invalid_argument_rejected(oso, study, arguments, parts) -> None:
    before = (study / "plan.json").read_bytes()
    refused(train(oso, *arguments[1:]), *parts)
    assert (study / "plan.json").read_bytes() == before
    assert not (study / "part" / "runs.parquet").exists()


def test_data_environment_folder_used(oso, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OSO_DATA_DIR", str(tmp_path / "elsewhere"))
    refused(oso("data", "mnist", "--output", tmp_path / "x.npz"), "elsewhere")
    refused(
        oso("data", "mnist", "--output", tmp_path / "x.npz", "--data-dir", tmp_path / "mine"),
        "mine",
    )


def test_oso_process_missing_config_rejected() -> None:
    code = "import sys, oso_dp.cli.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "oso_dp", "plan", "--config", "none.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "oso: error: none.yaml: cannot be read (No such file or directory)\n"


@pytest.mark.parametrize("there", ["reports/index.html", "reports/figures/mine.png"])
def test_report_into_foreign_folder_rejected(oso, tmp_path, monkeypatch, there) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).write_text("mine")
    refused(
        oso("report", "--results", "nowhere", "--output", "reports"),
        "reports: contains other files",
    )
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


@pytest.fixture
def portions(study, monkeypatch) -> tuple[Plan, list]:
    """A plan of a run per job, and what is asked to be trained; nothing is."""
    asked = []

    def train_shard(cohort, runs, *rest, stored):
        asked.append((cohort.name, [run.run_id for run in runs]))
        return SimpleNamespace(runs=[], evaluations=[])

    monkeypatch.setattr("oso_dp.training.job.run_job", train_shard)
    monkeypatch.setattr("oso_dp.data.validation.load_prepared", lambda *_: None)
    plan = replace(read_plan(Path("plan.json")), runs_per_job=1)
    write_plan(plan, Path("plan.json"))
    return plan, asked


def train_shard(oso, shard: int, cohort: str = COHORT):
    where = ("--data", "glyphs.npz", "--output", f"part{shard}", "--shard", shard)
    return oso("train", "--plan", "plan.json", "--cohort", cohort, *where)


def test_train_shard_number_selects_runs(oso, portions) -> None:
    plan, asked = portions
    for name in (COHORT, "glyphs.no_dp.k2.nonprivate"):
        runs = plan.cohort(name).runs
        assert len(runs) == 2
        for shard, run in enumerate(runs):
            status, _, error = train_shard(oso, shard, name)
            assert status == 0, error
            assert asked.pop() == (name, [run.run_id])
    refused(train_shard(oso, 2), "--shard: 2; must be 0 to 1 for glyphs.online.k2.eps3")


def test_train_part_of_other_shard_rejected(oso, portions) -> None:
    plan, asked = portions
    cohort = plan.cohort(COHORT)
    for shard, run in enumerate(cohort.runs):
        write_table(Path(f"part{shard}/runs.parquet"), "runs", [run_row(cohort, run)])
        assert train_shard(oso, shard)[0] == 0
        assert asked.pop() == (COHORT, [run.run_id])
        other = cohort.runs[1 - shard]
        write_table(Path(f"part{shard}/runs.parquet"), "runs", [run_row(cohort, other)])
        status, _, error = train_shard(oso, shard)
        assert (status, asked) == (2, [])
        assert f"has 1 runs that this job does not resume (the first is {other.run_id})" in error


def test_train_output_pending_store_rejected(oso, portions) -> None:
    Path("part0/.pending").mkdir(parents=True)
    status, _, error = train_shard(oso, 0)
    assert (status, portions[1]) == (2, [])
    assert "--output part0: is a results store" in error


SIZE = ("--examples", 6000, "--batch-size", 512, "--epochs", 1)
EVERY = {
    "calibrate": ("calibrate", "--epsilon", 3, *SIZE, "--runs", 9),
    "calibrate, stopped by Poisson": (
        *("calibrate", "--epsilon", 3, *SIZE, "--runs", 9),
        *("--search-accounting", "random-stopping", "--stopping-distribution", "poisson"),
    ),
    "calibrate, a study": ("calibrate", "--show-noise-split", "--config", "config/ci/smoke.yaml"),
    "epsilon": ("epsilon", "--noise-multiplier", 2, *SIZE, "--runs", 9),
}


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("name", EVERY)
def test_calibrate_epsilon_json_parses(oso, repo, monkeypatch, name) -> None:
    monkeypatch.chdir(repo)
    status, output, error = oso(*EVERY[name], "--json")
    assert (status, error) == (0, "")
    assert json.loads(output, parse_constant=refuse)


def test_json_text_nonfinite_becomes_null(capsys) -> None:
    text = json_text({"a": [math.nan, (math.inf, 1.5)], "b": -math.inf, "c": "NaN"})
    assert json.loads(text, parse_constant=refuse) == {
        "a": [None, [None, 1.5]],
        "b": None,
        "c": "NaN",
    }
    calibration_options.print_answer({"epsilon": math.inf}, None, as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {"epsilon": None}
