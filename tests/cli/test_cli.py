"""The command line: what it trains and stores, and what it says in one line."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from tests.commands import refused
from tests.planned_rows import run_row

from oso_dp import data as data_room
from oso_dp.cli import calibration_options
from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.files import json_text
from oso_dp.reporting.report_folder import ReportFolder
from oso_dp.results.read import read_results
from oso_dp.results.write import write_table
from oso_dp.scheduler.__main__ import main as campaign
from oso_dp.study.plan import Plan, read_plan, write_plan

COHORT = "glyphs.online.k2.eps3"
SMOKE = "config/ci/smoke.yaml"


def train(oso, *other: object):
    where = ("--cohort", COHORT, "--data", "glyphs.npz", "--output", "part")
    return oso("train", "--plan", "plan.json", *where, *other)


def test_from_plan_to_store(oso, study) -> None:
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


def test_a_part_has_one_writer(oso, study) -> None:
    (study / "part").mkdir()
    with FileLock(study / "part/.lock"):
        refused(train(oso), "--output: part; another job writes to it; wait for it")
        assert [path.name for path in (study / "part").iterdir()] == [".lock"]
    assert (study / "part/.lock").exists()  # as a killed job leaves it
    assert train(oso)[0] == 0


def test_stored_runs_are_not_trained_again(oso, collected) -> None:
    assert len(read_results(collected / "part").runs) == 2
    assert train(oso, "--store", "store")[0] == 0
    assert len(read_results(collected / "part").runs) == 0
    assert oso("collect", "part", "--store", "store")[1] == "store: 2 runs, 12 evaluations\n"


def test_missing_store_is_refused_unless_allowed(oso, collected) -> None:
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


def test_a_plan_from_standard_input(oso, repo, tmp_path, monkeypatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO((repo / SMOKE).read_text()))
    assert oso("plan", "--config", "-", "--output", tmp_path / "plan.json")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("epochs: [1"))
    refused(oso("plan", "--config", "-"), "configuration", "not YAML")


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
def test_train_refuses(oso, study, arguments, parts) -> None:
    before = (study / "plan.json").read_bytes()
    refused(train(oso, *arguments[1:]), *parts)
    assert (study / "plan.json").read_bytes() == before
    assert not (study / "part" / "runs.parquet").exists()


def test_data_of_another_data_set_are_refused(oso, study) -> None:
    small = np.zeros((10, 1, 14, 14), dtype=np.float32)
    targets = np.zeros(10, dtype=np.int64)
    arrays = Arrays(small, targets, small, targets)
    save_arrays(study / "small.npz", arrays, {"dataset": "glyphs"})
    refused(train(oso, "--data", "small.npz"), "training examples: 10; must be 6000")
    save_arrays(study / "other.npz", arrays, {"dataset": "mnist"})
    refused(train(oso, "--data", "other.npz"), "other.npz", "data set 'mnist'; must be 'glyphs'")
    prepared = {"dataset": "glyphs", "preparation": {"words": 25}}
    save_arrays(study / "other.npz", arrays, prepared)
    refused(
        train(oso, "--data", "other.npz"), "other.npz: prepared with options {'words': 25}; must be"
    )


def test_the_data_folder_from_the_environment(oso, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OSO_DATA_DIR", str(tmp_path / "elsewhere"))
    refused(oso("data", "mnist", "--output", tmp_path / "x.npz"), "elsewhere")
    refused(
        oso("data", "mnist", "--output", tmp_path / "x.npz", "--data-dir", tmp_path / "mine"),
        "mine",
    )


def test_a_store_cut_in_half_is_left_as_it_was(oso, collected) -> None:
    (path,) = (collected / "store" / "runs.parquet").glob("*.parquet")
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    refused(oso("collect", "part", "--store", "store"), path.name, "cut off")
    refused(oso("report", "--results", "store", "--output", "report"), "store/runs.parquet")
    refused(train(oso, "--store", "store"), "store/runs.parquet")
    assert path.read_bytes() == half
    assert not (collected / "report").exists()


def test_as_a_process() -> None:
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


@pytest.fixture
def reported(monkeypatch) -> list[tuple[str, str]]:
    """Results and folder of each report that would have been made."""
    calls: list[tuple[str, str]] = []

    def build(results, output, plans):
        calls.append((str(results), str(output)))
        return output / "index.html"

    monkeypatch.setattr("oso_dp.reporting.page.build.build_report", build)
    return calls


def test_a_report_goes_beside_its_results_unless_it_is_said(oso, reported) -> None:
    oso("report", "--results", "build/mine/results")
    oso("report")
    oso("report", "--results", "mine", "--output", "reports")
    assert reported == [
        ("build/mine/results", "build/mine/results-report"),
        ("results", "results-report"),
        ("mine", "reports"),
    ]


@pytest.mark.parametrize("there", ["reports/index.html", "reports/figures/mine.png"])
def test_a_report_does_not_replace_what_it_did_not_write(oso, tmp_path, monkeypatch, there) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).write_text("mine")
    refused(
        oso("report", "--results", "nowhere", "--output", "reports"),
        "reports: contains other files",
    )
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def test_a_report_is_published_by_command(oso, tmp_path) -> None:
    refused(oso("publish", tmp_path, "--output", tmp_path / "x"), "contains no report")
    report = ReportFolder(tmp_path / "report", tmp_path / "store")
    report.write("index.html", "page")
    report.finish()
    page = tmp_path / "public/index.html"
    assert oso("publish", tmp_path / "report", "--output", page.parent)[:2] == (0, f"{page}\n")
    assert page.read_text() == "page"


def test_a_data_set_of_an_installed_package_is_among_the_allowed(oso, study, monkeypatch) -> None:
    wanted = ("data", "nosuch", "--output", "x.npz")
    refused(oso(*wanted), "data set 'nosuch': ")
    offered = [EntryPoint("patients", "a:b", "oso_dp.data").name]
    monkeypatch.setattr(data_room, "list_plugins", lambda: offered)
    refused(oso(*wanted), "patients")


def test_the_cohorts_of_a_plan_are_named(oso, study) -> None:
    given = ("--plan", "plan.json", "--data", "glyphs.npz", "--output", "part")
    refused(oso("train", *given, "--cohort", "nosuch"), "cohort: 'nosuch'", f"are {COHORT}")


def test_somebody_elses_archive_is_no_data_file_and_stays(oso, collected) -> None:
    np.savez("foreign.npz", a=np.array([{}], dtype=object))
    given = ("collect", "part", "--store", "store", "--data")
    error = refused(
        oso(*given, "foreign.npz"), "foreign.npz: truncated, or not a data file written by"
    )
    assert "pickle" not in error
    assert "remove" not in error
    refused(oso(*given, "none.npz"), "none.npz: cannot read data file (No such file")
    train = ("train", "--plan", "plan.json", "--cohort", COHORT, "--output", "new", "--data")
    assert "remove" not in refused(
        oso(*train, "foreign.npz"), "foreign.npz: truncated, or not a data file written by `oso"
    )


def test_randomness_for_protection_is_not_said_to_protect_nothing(oso, study, repo) -> None:
    text = (repo / "config/ci/smoke.yaml").read_text(encoding="utf-8")
    Path("system.yaml").write_text(f"{text}\nrandomness: system\n")
    assert oso("plan", "--config", "system.yaml", "--output", "system.json")[0] == 0
    cohort = next(one.name for one in read_plan(Path("system.json")).cohorts if one.is_private)
    given = ("--cohort", cohort, "--data", "glyphs.npz", "--output", "x.csv")
    error = refused(
        oso("diagnose", "cosine", "--plan", "system.json", *given),
        "system.json: randomness: system",
    )
    assert "these do not" not in error
    assert "must be seeded" in error


def test_the_steps_that_are_looked_at_stand_in_the_help(oso) -> None:
    assert "100, 250, 500, 750, 950" in " ".join(oso("diagnose", "cosine", "--help")[1].split())


def test_one_is_one(oso, repo, tmp_path) -> None:
    size = ("--examples", 6000, "--batch-size", 6000, "--epochs", 1, "--runs", 1)
    assert "for 1 run of 1 step at" in oso("calibrate", "--epsilon", 3, *size)[1]
    text = (repo / "config/ci/smoke.yaml").read_text(encoding="utf-8")
    head = text.partition("methods:")[0] + "methods:\n  online: {}\n"
    (tmp_path / "one.yaml").write_text(f"{head}values_per_axis: [1]\nseeds: [0]\n")
    status, output, error = oso("plan", "--config", tmp_path / "one.yaml")
    assert status == 0, error
    assert "in 1 cohort and" in output


def test_a_grid_without_the_papers_points_names_its_file(oso, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\ndatasets: {mnist: {model: cnn, epsilons: [9], seconds_per_step: "
        "1}}\nmethods: {fixed_threshold: {}}\nvalues_per_axis: [9]\nseeds: [0]\ngrid_points: "
        "paper_best\ngrid: {log10_learning_rate: [-2, 1]}\n"
    )
    refused(oso("plan", "--config", path), f"error: {path}: table ", "not a point of the grid")


@pytest.mark.parametrize("skip", [True, False])
def test_campaign_without_any_data_names_them(study, skip, capsys) -> None:
    command = ["--minutes", "1", "--results", "out", "--plan", "plan.json", "--data", "nowhere"]
    done = campaign([*command, *["--skip-missing"] * skip])
    error = refused((done, *capsys.readouterr()), "nowhere/glyphs.npz: no such file")
    assert ("--skip-missing" in error) == (not skip)


@pytest.fixture
def portions(study, monkeypatch) -> tuple[Plan, list]:
    """A plan of a run per job, and what is asked to be trained; nothing is."""
    asked = []

    def train_shard(cohort, runs, *rest):
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


def test_each_shard_is_trained_by_its_number(oso, portions) -> None:
    plan, asked = portions
    for name in (COHORT, "glyphs.no_dp.k2.nonprivate"):
        runs = plan.cohort(name).runs
        assert len(runs) == 2
        for shard, run in enumerate(runs):
            status, _, error = train_shard(oso, shard, name)
            assert status == 0, error
            assert asked.pop() == (name, [run.run_id])
    refused(train_shard(oso, 2), "--shard: 2; must be 0 to 1 for glyphs.online.k2.eps3")


def test_a_planned_run_that_is_in_no_part_is_missed(oso, collected) -> None:
    plan = ("--plan", "plan.json")
    status, _, error = oso("collect", "part", "--store", "new", *plan)
    assert status == 2
    assert "2 planned runs are neither there nor in the named shards" in error
    assert not (collected / "new/runs.parquet").exists()
    assert oso("collect", "part", "--store", "new")[0] == 0


def test_what_is_ahead_leaves_out_what_is_stored(oso, collected, repo) -> None:
    text = (repo / "config/ci/smoke.yaml").read_text()
    for folder, stored in (("empty", 0), ("store", 2)):
        Path("study.yaml").write_text(text.replace("build/smoke/results", folder))
        status, said, error = oso("plan", "--config", "study.yaml")
        assert status == 0, error
        assert f"2 private runs in 1 cohort and 2 NoDP runs in 1; {stored} of them stored" in said


def test_every_grid_is_checked_thrice_where_that_is_asked_for(oso, collected, monkeypatch) -> None:
    asked = []

    def table(grids, every=False):
        asked.append(every)
        return pd.DataFrame(
            {"grid": ["a"], "delta": [1e-5], "rdp": [1.0], "pld": [1.0], "prv": [1.0]}
        )

    monkeypatch.setattr("oso_dp.analysis.accounts.account_grids", lambda *_: [])
    monkeypatch.setattr("oso_dp.analysis.accounts.accounts_table", table)
    assert oso("account", "store")[0] == 0
    assert oso("account", "store", "--all-accountants")[0] == 0
    assert asked == [False, True]


def test_a_part_with_another_shards_runs_is_not_written_over(oso, portions) -> None:
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
        assert f"has 1 runs that this job does not train (the first is {other.run_id})" in error


def test_a_store_whose_change_is_on_its_way_is_no_part(oso, portions) -> None:
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
def test_every_answer_is_json(oso, repo, monkeypatch, name) -> None:
    monkeypatch.chdir(repo)
    status, output, error = oso(*EVERY[name], "--json")
    assert (status, error) == (0, "")
    assert json.loads(output, parse_constant=refuse)


def test_no_command_has_json_that_is_not_tried(oso) -> None:
    listed = [line.split()[0] for line in oso("--help")[1].split("Commands:")[1].splitlines()[1:]
              if line.strip()]  # fmt: skip
    have = {name for name in listed if "--json" in oso(name, "--help")[1]}
    assert have == {arguments[0] for arguments in EVERY.values()}


def test_what_is_not_finite_is_null(capsys) -> None:
    text = json_text({"a": [math.nan, (math.inf, 1.5)], "b": -math.inf, "c": "NaN"})
    assert json.loads(text, parse_constant=refuse) == {
        "a": [None, [None, 1.5]],
        "b": None,
        "c": "NaN",
    }
    calibration_options.print_answer({"epsilon": math.inf}, None, as_json=True)
    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == {"epsilon": None}
